"""Both real fleets under the contract suite, over the emulator: real HTTP, real worker processes, injected delays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.boto3_fleet import Boto3Fleet
from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig, FaultKind, FaultPlan, FaultRate
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import Task
from tests.orchestrator.fleet_contract import FleetContract, call, take_all
from tests.orchestrator.fleets.emulated import EmulatedHarness

WORKERS = 8


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(EmulatorConfig(concurrency=WORKERS, warm=WORKERS, timeout_s=20.0)) as running:
        yield running


@pytest.fixture(scope="module", params=[LambdaFleet, Boto3Fleet], ids=["own client", "boto3"])
def warm_harness(request: pytest.FixtureRequest, emulator: Emulator) -> Iterator[EmulatedHarness]:
    yield from warmed(EmulatedHarness(emulator, request.param))


def warmed(made: EmulatedHarness) -> Iterator[EmulatedHarness]:
    fleet = made.open([[1.0]])
    fleet.warm([call(0, worker) for worker in range(WORKERS)])
    fleet.close()
    yield made
    made.store.close()


@pytest.fixture
def harness(warm_harness: EmulatedHarness) -> Iterator[EmulatedHarness]:
    """Delays and faults that a test sets end with it."""
    yield warm_harness
    warm_harness.emulator.set_delays(DelayPlan())
    warm_harness.emulator.set_faults(FaultPlan())


@pytest.fixture(scope="module")
def event_harness(emulator: Emulator) -> Iterator[EmulatedHarness]:
    yield from warmed(EmulatedHarness(emulator, LambdaFleet, events=True))


class TestEvents(FleetContract):
    """The own client once more, with events whose replies come through S3."""

    @pytest.fixture
    def harness(self, event_harness: EmulatedHarness) -> Iterator[EmulatedHarness]:
        yield event_harness
        event_harness.emulator.set_delays(DelayPlan())
        event_harness.emulator.set_faults(FaultPlan())

    def test_deliveries_come_twice_and_count_once(self, harness: EmulatedHarness) -> None:
        """Events are delivered at least once. Both write the same bytes under the same name."""
        fleet = harness.open([[1.0, 2.0]])
        harness.emulator.set_faults(FaultPlan(rates=(FaultRate(FaultKind.DUPLICATE, 1.0),)))
        before = harness.emulator.statistics()["faults"].get("duplicate", 0)
        try:
            fleet.invoke([call(0, 0), call(0, 1)])
            assert sorted((a.worker, a.outcome, a.slots) for a in take_all(fleet)) == [
                (0, Outcome.OK, (0,)),
                (1, Outcome.OK, (0,)),
            ]
            assert harness.emulator.statistics()["faults"]["duplicate"] == before + 2
        finally:
            fleet.close()


class TestEmulatedFleets(FleetContract):
    @pytest.fixture
    def harness(self, harness: EmulatedHarness) -> EmulatedHarness:
        return harness


def test_more_calls_than_aws_lets_in_are_repeated_until_there_is_room(harness: EmulatedHarness) -> None:
    """429s cost time, not results: 20 calls into a limit of 8."""

    def refusals() -> int:
        return int(harness.emulator.statistics()["refused"].get("TooManyRequestsException", 0))

    fleet = harness.open([[1.0] * 20])
    try:
        before = refusals()
        fleet.invoke([call(0, worker) for worker in range(20)])
        arrivals = take_all(fleet)
        assert sorted(a.worker for a in arrivals) == list(range(20))
        assert {a.outcome for a in arrivals} == {Outcome.OK}
        assert refusals() > before
    finally:
        fleet.close()


@pytest.mark.parametrize(
    ("fault", "outcome", "text"),
    [
        (FaultKind.CRASH, Outcome.CRASHED, "Runtime.ExitError"),
        (FaultKind.OOM, Outcome.OUT_OF_MEMORY, "Runtime.OutOfMemory"),
        (FaultKind.ERROR, Outcome.FAILED, "Error"),
        (FaultKind.INIT, Outcome.FAILED, "Runtime.ImportModuleError"),
        (FaultKind.TRUNCATE, Outcome.UNREACHABLE, "the connection broke"),
        (FaultKind.CORRUPT, Outcome.FAILED, ""),
    ],
)
def test_faults_by_name(harness: EmulatedHarness, fault: FaultKind, outcome: Outcome, text: str) -> None:
    fleet = harness.open([[0.0]])
    harness.emulator.set_faults(FaultPlan(rates=(FaultRate(fault, 1.0),)))
    try:
        fleet.invoke([call(0, 0)])
        (arrival,) = take_all(fleet)
        assert (arrival.outcome, arrival.slots) == (outcome, ())
        assert text in arrival.error
        assert arrival.error
    finally:
        fleet.close()


def test_warm_workers_are_not_cold_when_invoked(harness: EmulatedHarness) -> None:
    fleet = harness.open([[1.0] * 4])
    try:
        warmed = fleet.warm([call(0, worker) for worker in range(4)])
        assert [(a.worker, a.outcome, a.results) for a in warmed] == [(w, Outcome.OK, {}) for w in range(4)]
        fleet.invoke([call(0, worker) for worker in range(4)])
        assert [a.cold for a in take_all(fleet)] == [False] * 4
    finally:
        fleet.close()


def test_early_messages_come_when_their_part_of_the_work_is_done(warm_harness: EmulatedHarness) -> None:
    """Two messages of equal size; a load of 1 takes 6 units longer than a load of 0."""
    if warm_harness.kind is not LambdaFleet:
        pytest.skip("with boto3 everything comes in the answer")
    tasks = (Task(0, (0,), (1.0,), message=0), Task(0, (1,), (1.0,), message=1))
    invocation = Invocation(round=0, worker=0, attempt=1, slots=tasks, load=1.0, epoch=3, early=(0.5,))
    fleet = warm_harness.open([[1.0]])
    warm_harness.emulator.set_delays(DelayPlan.of([[1.0]], slope_s=6.0, time_scale=warm_harness.unit_s))
    try:
        start = fleet.invoke([invocation])
        early, last = take_all(fleet)
    finally:
        fleet.close()
        warm_harness.emulator.set_delays(DelayPlan())
    assert [(early.final, early.slots, set(early.results)), (last.final, last.slots, set(last.results))] == [
        (False, (0,), {0}),
        (True, (1,), {1}),
    ]
    waits = [(arrival.at_s - start) / warm_harness.unit_s for arrival in (early, last)]
    assert waits[0] >= 4.0
    assert waits[1] >= max(7.0, waits[0])
    assert (early.billed_s, last.billed_s > 0) == (0.0, True)
