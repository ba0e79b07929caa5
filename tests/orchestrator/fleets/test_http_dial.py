"""Names with several addresses: one that leads nowhere costs a quarter of a second, once."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gradmux.orchestrator.fleets import http_dial
from gradmux.orchestrator.fleets.http_dial import Dialer, NoConnection, Route, alternating

TCP = (socket.SOCK_STREAM, 6, "")
PATIENT_S = 20.0
"""of a test: much longer than what is tested takes"""


class Resolving:
    """An event loop whose names have the addresses that a test wants."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._found = [(socket.AF_INET, *TCP, address) for address in addresses]

    async def getaddrinfo(self, *_: Any, **__: Any) -> list[Any]:
        return self._found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.fixture
def black_hole() -> Iterator[tuple[str, int]]:
    """An address that answers nothing: the queue of a listening socket is full, so that the kernel drops SYNs."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        address = listening.getsockname()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        yield address


def listening_beside(address: tuple[str, int], host: str) -> socket.socket:
    return socket.create_server((host, address[1]), backlog=64)


def dialed(addresses: list[tuple[str, int]], times: int, at_once: int = 1) -> list[str]:
    """Hosts that so many dials reached, one after the other, or several at once."""

    async def main() -> list[str]:
        dialer = Dialer(Route.to(f"http://example.test:{addresses[0][1]}", None))
        dialer._loop = Resolving(*addresses)  # type: ignore[assignment]
        reached: list[str] = []

        class Reached(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                reached.append(transport.get_extra_info("peername")[0])
                transport.abort()

        for _ in range(times):
            await asyncio.gather(*(dialer.dial(Reached) for _ in range(at_once)))
        return reached

    return asyncio.run(asyncio.wait_for(main(), PATIENT_S))


@pytest.mark.parametrize("dead_first", [True, False])
def test_a_dead_address_is_overtaken(
    monkeypatch: pytest.MonkeyPatch, black_hole: tuple[str, int], dead_first: bool
) -> None:
    monkeypatch.setattr(http_dial, "CONNECT_S", 2 * PATIENT_S)  # to wait for the dead one would fail
    good = ("127.0.0.3", black_hole[1])
    with listening_beside(black_hole, good[0]):
        addresses = [black_hole, good] if dead_first else [good, black_hole]
        assert dialed(addresses, times=4) == [good[0]] * 4
        assert dialed(addresses, times=2, at_once=6) == [good[0]] * 12


def test_the_dead_address_is_remembered(monkeypatch: pytest.MonkeyPatch, black_hole: tuple[str, int]) -> None:
    """After the first dial that it delayed no attempt begins with it: else the next ones would wait for ever."""
    good = ("127.0.0.3", black_hole[1])

    async def main() -> None:
        dialer = Dialer(Route.to(f"http://example.test:{black_hole[1]}", None))
        dialer._loop = Resolving(black_hole, good)  # type: ignore[assignment]
        await dialer.dial(asyncio.Protocol)
        monkeypatch.setattr(http_dial, "STAGGER_S", 2 * PATIENT_S)
        for _ in range(4):
            await dialer.dial(asyncio.Protocol)

    with listening_beside(black_hole, good[0]):
        asyncio.run(asyncio.wait_for(main(), PATIENT_S))


def test_good_addresses_share_the_connections() -> None:
    with socket.create_server(("127.0.0.4", 0)) as one, listening_beside(one.getsockname(), "127.0.0.5"):
        port = one.getsockname()[1]
        reached = dialed([("127.0.0.4", port), ("127.0.0.5", port)], times=6)
    assert sorted(reached) == ["127.0.0.4"] * 3 + ["127.0.0.5"] * 3


def test_all_dead_is_one_line_after_the_limit(monkeypatch: pytest.MonkeyPatch, black_hole: tuple[str, int]) -> None:
    monkeypatch.setattr(http_dial, "CONNECT_S", 0.4)
    with pytest.raises(NoConnection, match=r"no connection within 0\.4 s"):
        dialed([black_hole, black_hole], times=1)


def test_an_address_whose_handshake_fails_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, but speaks no TLS: the next dials begin elsewhere."""
    monkeypatch.setattr(http_dial, "CONNECT_S", 0.4)

    async def main(addresses: list[tuple[str, int]]) -> None:
        dialer = Dialer(Route.to(f"https://example.test:{addresses[0][1]}", ssl.create_default_context()))
        dialer._loop = Resolving(*addresses)  # type: ignore[assignment]
        with pytest.raises(NoConnection):
            await dialer.dial(asyncio.Protocol)
        found = await dialer._find()
        assert {dialer._order(found)[0][4][0] for _ in range(4)} == {"127.0.0.7"}

    with socket.create_server(("127.0.0.6", 0)) as deaf, listening_beside(deaf.getsockname(), "127.0.0.7"):
        port = deaf.getsockname()[1]
        asyncio.run(asyncio.wait_for(main([("127.0.0.6", port), ("127.0.0.7", port)]), PATIENT_S))


def test_both_families_take_turns() -> None:
    six = [(socket.AF_INET6, *TCP, (f"::{number}", 80, 0, 0)) for number in range(3)]
    four = [(socket.AF_INET, *TCP, ("10.0.0.1", 80))]
    assert alternating([*six, *four]) == [six[0], four[0], six[1], six[2]]
    assert alternating([*four, *six]) == [four[0], *six]
    assert alternating([]) == []
