"""Looking into a store: soon enough, ever less often, one by one or by the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gradmux.orchestrator.fleets.mailbox import FEW, LONGEST_S, SHORTEST_S, Mailbox, folder_of, pause_s
from gradmux.orchestrator.store import MemoryStore, StoreUnavailable


class CountingStore(MemoryStore):
    """Counts requests, as S3 bills them."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.lists = 0

    def get(self, key: str) -> bytes:
        self.gets += 1
        return super().get(key)

    def list(self, prefix: str) -> list[str]:
        self.lists += 1
        return super().list(prefix)


def run(use: Callable[[Mailbox], Awaitable[None]], store: MemoryStore) -> None:
    async def main() -> None:
        mailbox = Mailbox(store)
        async with asyncio.timeout(20):
            await use(mailbox)
        mailbox.close()

    asyncio.run(main())


def key(worker: int, round: int = 0) -> str:
    return f"runs/r/results/ab/3-{round}/3-{round}-{worker}-1/reply"


def test_all_invocations_of_a_round_share_a_folder() -> None:
    assert folder_of(key(4)) == folder_of(key(5)) == "runs/r/results/ab/3-0/"
    assert folder_of(key(4, round=1)) != folder_of(key(4))


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 100])
def test_objects_are_found_when_they_come(count: int) -> None:
    store = CountingStore()

    async def use(mailbox: Mailbox) -> None:
        waiting = [asyncio.create_task(mailbox.get(key(worker))) for worker in range(count)]
        for worker in range(count):
            await asyncio.sleep(0.1 / count)
            store.put(key(worker), b"%d" % worker)
        assert await asyncio.gather(*waiting) == [b"%d" % worker for worker in range(count)]

    run(use, store)
    assert store.lists <= 12
    assert store.gets <= count + 12 * FEW
    assert (store.lists > 0) is (count > FEW)


def test_looks_grow_with_the_logarithm_of_the_time() -> None:
    """What 10, 100 and 900 seconds of waiting cost."""

    def looks(duration_s: float) -> int:
        at_s, count = 0.0, 0
        while at_s < duration_s:
            at_s, count = at_s + pause_s(at_s), count + 1
        return count

    assert pause_s(0.0) == SHORTEST_S
    assert pause_s(1e6) == LONGEST_S
    assert looks(10) < 90
    assert looks(100) < 140
    assert looks(900) < 300
    assert all(pause_s(age) <= max(SHORTEST_S, 0.05 * age) for age in (0.1, 1.0, 50.0)), "late by 5 % at most"


def test_who_gives_up_is_not_looked_for() -> None:
    store = CountingStore()

    async def use(mailbox: Mailbox) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await mailbox.get(key(0))
        await asyncio.sleep(0.1)
        looked = store.gets
        await asyncio.sleep(0.2)
        assert store.gets == looked
        store.put(key(0), b"late")
        assert await mailbox.get(key(0)) == b"late"

    run(use, store)


def test_now_or_not_at_all() -> None:
    store = CountingStore()

    async def use(mailbox: Mailbox) -> None:
        assert await mailbox.get_now(key(0)) is None
        store.put(key(0), b"there")
        assert await mailbox.get_now(key(0)) == b"there"
        mailbox.drop([key(0)])
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not store.exists(key(0)):
                break
        assert not store.exists(key(0))

    run(use, store)


class BrokenStore(MemoryStore):
    def get(self, key: str) -> bytes:
        raise StoreUnavailable("bucket b does not answer")


def test_trouble_is_everybodys_who_waits() -> None:
    async def use(mailbox: Mailbox) -> None:
        waiting = [asyncio.create_task(mailbox.get(key(worker))) for worker in range(3)]
        troubles = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(trouble) for trouble in troubles] == [StoreUnavailable] * 3

    run(use, BrokenStore())
