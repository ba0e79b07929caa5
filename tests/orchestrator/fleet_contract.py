"""What every fleet must do, as one suite: inherit `FleetContract` and give it a `harness`.

    class TestMyFleet(FleetContract):
        @pytest.fixture
        def harness(self) -> Harness: ...

Delays are in units of the harness: a second of virtual time, or a tenth of a real one. What fails there is tried again
in longer units: a busy machine may add as much to an answer as the delays differ by, and then nothing follows from who
comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

import pytest

from gradmux.orchestrator.ports import Arrival, Fleet, Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import Task


class Harness(Protocol):
    """How the suite gets its fleets."""

    unit_s: float
    """one unit of delay, in seconds of the fleet's clock"""
    has_results: bool
    """whether arrivals carry vectors"""

    def open(self, delays: Sequence[Sequence[float]], failing: Collection[tuple[int, int]] = ()) -> Fleet:
        """A fleet whose worker w answers an invocation of round r after delays[r][w] units.

        It fails instead in every (round, worker) of `failing`, at an instant of its own. All first attempts; later
        ones may take the delay of any worker of the round. Tasks of job 0, chunks 0 and 1 must be computable.
        """
        ...


def call(round: int, worker: int, attempt: int = 1, *, slots: int = 1, idle: Collection[int] = ()) -> Invocation:
    """An invocation with a task of job 0 in every slot that is not idle."""
    tasks = tuple(None if slot in idle else Task(0, (slot % 2,), (1.0,)) for slot in range(slots))
    return Invocation(round=round, worker=worker, attempt=attempt, slots=tasks, load=0.0, epoch=3)


def take_all(fleet: Fleet) -> list[Arrival]:
    """Everything that is in flight, as it comes."""
    return list(iter(lambda: fleet.next(None), None))


LONGEST_S = 1.0
"""A unit in which nothing that goes wrong is the machine's fault."""


def patiently(test: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The test, tried in ever longer units until it holds; at the longest it must."""

    @wraps(test)
    def tried(self: FleetContract, harness: Harness) -> None:
        usual_s = harness.unit_s
        try:
            while harness.unit_s < LONGEST_S:
                try:
                    return test(self, harness)
                except AssertionError:
                    harness.unit_s *= 4
            test(self, harness)
        finally:
            harness.unit_s = usual_s

    return tried


class FleetContract:
    """The suite."""

    @pytest.fixture
    def harness(self) -> Harness:
        raise NotImplementedError("give your harness")

    @contextmanager
    def opened(
        self, harness: Harness, delays: Sequence[Sequence[float]], failing: Collection[tuple[int, int]] = ()
    ) -> Iterator[Fleet]:
        fleet = harness.open(delays, failing)
        try:
            yield fleet
        finally:
            fleet.close()

    @patiently
    def test_every_invocation_gives_one_final_arrival_of_its_own(self, harness: Harness) -> None:
        with self.opened(harness, [[1, 2, 1, 3]] * 2) as fleet:
            calls = [call(round, worker) for round in range(2) for worker in range(4)]
            fleet.invoke(calls)
            arrivals = take_all(fleet)
            assert sorted((a.round, a.worker, a.attempt) for a in arrivals) == [
                (c.round, c.worker, c.attempt) for c in calls
            ]
            assert all(a.final and a.epoch == 3 and a.outcome is Outcome.OK and not a.error for a in arrivals)
            assert fleet.next(None) is None

    @patiently
    def test_the_fast_come_before_the_slow_after_their_delays(self, harness: Harness) -> None:
        with self.opened(harness, [[5, 1, 3]]) as fleet:
            start = fleet.invoke([call(0, worker) for worker in range(3)])
            arrivals = take_all(fleet)
            assert [a.worker for a in arrivals] == [1, 2, 0]
            waits = [(a.at_s - start) / harness.unit_s for a in arrivals]
            assert all(delay <= wait + 1e-9 for wait, delay in zip(waits, (1, 3, 5), strict=True))

    @patiently
    def test_the_clock_is_the_fleets_and_never_goes_back(self, harness: Harness) -> None:
        with self.opened(harness, [[1, 2, 3, 2]]) as fleet:
            clock = [fleet.now(), fleet.invoke([call(0, worker) for worker in range(4)])]
            stamps = []
            while (arrival := fleet.next(None)) is not None:
                stamps.append(arrival.at_s)
                clock.append(fleet.now())
                assert clock[1] <= stamps[-1] <= clock[-1]
            assert clock == sorted(clock)
            assert stamps == sorted(stamps)
            assert clock[0] >= 0.0

    @patiently
    def test_invoke_does_not_wait(self, harness: Harness) -> None:
        with self.opened(harness, [[4, 4]]) as fleet:
            before = fleet.now()
            start = fleet.invoke([call(0, 0), call(0, 1)])
            assert before <= start <= fleet.now() < start + 4 * harness.unit_s

    @patiently
    def test_nothing_is_given_that_comes_after_until(self, harness: Harness) -> None:
        with self.opened(harness, [[1, 8]]) as fleet:
            start = fleet.invoke([call(0, 0), call(0, 1)])
            until = start + 5 * harness.unit_s
            first = fleet.next(until)
            assert first is not None
            assert (first.worker, first.at_s <= until) == (0, True)
            assert fleet.next(until) is None
            assert fleet.now() >= until
            last = fleet.next(None)
            assert last is not None
            assert last.worker == 1
            assert last.at_s > until

    @patiently
    def test_until_may_have_passed(self, harness: Harness) -> None:
        with self.opened(harness, [[1, 3]]) as fleet:
            start = fleet.invoke([call(0, 0), call(0, 1)])
            assert fleet.next(None) is not None
            now = fleet.now()
            assert fleet.next(start) is None
            assert fleet.now() >= now
            assert len(take_all(fleet)) == 1

    @patiently
    def test_waiting_passes_the_time_when_nothing_is_in_flight(self, harness: Harness) -> None:
        with self.opened(harness, [[1]]) as fleet:
            assert fleet.next(None) is None
            until = fleet.now() + harness.unit_s
            assert fleet.next(until) is None
            assert fleet.now() >= until

    @patiently
    def test_rounds_overlap(self, harness: Harness) -> None:
        with self.opened(harness, [[1, 6], [2, 1]]) as fleet:
            fleet.invoke([call(0, 0), call(0, 1)])
            first = fleet.next(None)
            assert first is not None
            fleet.invoke([call(1, 0), call(1, 1)])
            assert [(a.round, a.worker) for a in take_all(fleet)] == [(1, 1), (1, 0), (0, 1)]

    @patiently
    def test_attempts_are_told_apart(self, harness: Harness) -> None:
        with self.opened(harness, [[2, 2, 2]]) as fleet:
            fleet.invoke([call(0, 1)])
            fleet.invoke([call(0, 1, attempt=2)])
            assert sorted((a.worker, a.attempt) for a in take_all(fleet)) == [(1, 1), (1, 2)]

    @patiently
    def test_idle_slots_are_not_answered(self, harness: Harness) -> None:
        with self.opened(harness, [[1]]) as fleet:
            fleet.invoke([call(0, 0, slots=4, idle=(0, 2))])
            arrival = fleet.next(None)
            assert arrival is not None
            assert arrival.slots == (1, 3)
            assert not arrival.skipped
            assert set(arrival.results) == ({1, 3} if harness.has_results else set())

    @patiently
    def test_a_failure_is_an_arrival(self, harness: Harness) -> None:
        with self.opened(harness, [[1, 2, 3]], failing={(0, 1)}) as fleet:
            fleet.invoke([call(0, worker) for worker in range(3)])
            arrivals = {a.worker: a for a in take_all(fleet)}
            assert set(arrivals) == {0, 1, 2}
            assert arrivals[1].outcome is not Outcome.OK
            assert arrivals[1].error
            assert not arrivals[1].slots
            assert {arrivals[0].outcome, arrivals[2].outcome} == {Outcome.OK}

    @patiently
    def test_what_an_invocation_took_is_told(self, harness: Harness) -> None:
        with self.opened(harness, [[2]]) as fleet:
            fleet.invoke([call(0, 0)])
            arrival = fleet.next(None)
            assert arrival is not None
            assert 0 < arrival.worker_s <= arrival.at_s + 1e-3
            assert arrival.billed_s > 0

    @patiently
    def test_closing_abandons_what_is_in_flight(self, harness: Harness) -> None:
        fleet = harness.open([[5, 1]])
        fleet.invoke([call(0, 0), call(0, 1)])
        fleet.close()
        assert fleet.next(None) is None
        fleet.close()
