"""Slots that processes share: never more than the limit, equal shares while others wait, nothing lost with the dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.infra.closed_session import closed_session
from gradmux.infra.lambda_place import LambdaPlace
from gradmux.orchestrator.fleets.between import SharedFleet
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.ports import Arrival, Invocation
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.slots import Slots, slots_folder

HOLD = "import sys, time; from pathlib import Path; from gradmux.orchestrator.runs.slots import Slots; "


def test_one_process_alone_gets_all_and_never_more(tmp_path: Path) -> None:
    slots = Slots(tmp_path, 10)
    assert [slots.take(4), slots.take(4), slots.take(4), slots.take(1)] == [4, 4, 2, 0]
    slots.give_back(3)
    assert slots.take(8) == 3
    slots.close()


def test_while_others_wait_nobody_takes_more_than_its_share(tmp_path: Path) -> None:
    greedy, late = Slots(tmp_path, 10), Slots(tmp_path, 10)
    assert greedy.take(10) == 10
    assert late.take(8) == 0
    greedy.give_back(3)
    assert greedy.take(3) == 0, "the other waits, and this one has more than half"
    assert late.take(8) == 3
    greedy.give_back(5)
    assert late.take(5) == 2, "its half"
    assert greedy.take(3) == 3, "up to its half"
    late.give_back(5)
    assert late.take(0) == 0
    assert greedy.take(9) == 5, "nobody waits any more: whatever is free"
    greedy.close()
    assert late.take(10) == 10
    late.close()


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(1, 20),
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=40),
)
def test_together_they_never_hold_more_than_the_limit(
    tmp_path_factory: pytest.TempPathFactory, limit: int, moves: Sequence[tuple[int, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("slots")
    leases = [Slots(folder, limit) for _ in range(4)]
    for who, count, back in moves:
        if back:
            leases[who].give_back(min(count, leases[who].used))
        else:
            leases[who].take(count)
        assert sum(lease.used for lease in leases) <= limit
    for lease in leases:
        lease.give_back(lease.used)
        assert lease.take(0) == 0
    assert leases[0].take(limit) == limit, "with all of them back, and nobody waiting, one may have all"
    for lease in leases:
        lease.close()


def test_the_slots_of_a_killed_process_are_free(tmp_path: Path) -> None:
    code = HOLD + f"s = Slots(Path({str(tmp_path)!r}), 5); print(s.take(5), flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "5\n"
    slots = Slots(tmp_path, 5)
    assert slots.take(5) == 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert slots.take(5) == 5
    assert [path.name.partition("-")[0] for path in tmp_path.glob("*.lease")] == [str(os.getpid())]
    slots.close()


def test_emulators_share_one_ledger_and_real_endpoints_have_their_own(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "runs" / "r-1")

    def pool(url: str) -> str:
        return LambdaPlace("aws", partial(closed_session, "us-east-1"), "b", "f", 60.0, lambda_url=url).pool

    assert {pool(f"http://127.0.0.1:{port}") for port in (1, 2)} == {"local"}
    assert slots_folder(paths, pool("https://lambda.us-east-1.amazonaws.com")).parent == tmp_path / "slots"
    assert pool("https://lambda.us-east-1.amazonaws.com") != pool("https://lambda.eu-central-1.amazonaws.com")


class Counter:
    """Slots of one process that are granted as the test says."""

    def __init__(self, grants: Sequence[int]) -> None:
        self.grants, self.used, self.peak = deque(grants), 0, 0

    def take(self, wanted: int) -> int:
        granted = min(wanted, self.grants.popleft() if self.grants else 3 - self.used)
        self.used += granted
        self.peak = max(self.peak, self.used)
        return granted

    def give_back(self, count: int) -> None:
        self.used -= count


def arrivals(fleet: SharedFleet) -> Iterator[Arrival]:
    return iter(lambda: fleet.next(None), None)


def test_calls_without_a_slot_wait_in_order_and_all_come_back() -> None:
    delays = np.arange(1.0, 9.0).reshape(1, 8)
    slots = Counter([0, 2])
    fleet = SharedFleet(ProfileFleet(DelayTable(delays, 8), LoadModel()), slots, look_s=0.5)
    fleet.invoke([Invocation(0, worker, 1, (), 0.0) for worker in range(8)])
    assert fleet.next(0.25) is None
    assert fleet.now() == 0.25
    came = [arrival.worker for arrival in arrivals(fleet)]
    assert sorted(came) == list(range(8))
    assert came[:2] == [0, 1]
    assert slots.peak <= 3
    assert slots.used == 0


def test_a_limit_of_one_still_plays_everything(tmp_path: Path) -> None:
    slots = Slots(tmp_path, 1)
    fleet = SharedFleet(ProfileFleet(DelayTable(np.ones((1, 4)), 4), LoadModel()), slots)
    fleet.invoke([Invocation(0, worker, 1, (), 0.0) for worker in range(4)])
    assert [arrival.at_s for arrival in arrivals(fleet)] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    slots.close()
