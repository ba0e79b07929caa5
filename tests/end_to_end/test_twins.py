"""A real run and its twins: its record replayed takes the same decisions, its delays simulated take the same time.

The runs go over the emulator with slow, crashing and throttled workers, retries and late answers. `ReplayFleet` plays
their records again to the same rounds, late workers and decode weights; `ProfileFleet` plays the delays that
`from_lines` finds in a record, and can never be slower than the run, which had its own work to do between rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from gradmux.infra.local import FaultKind, FaultPlan, FaultRate, ScheduledFault
from gradmux.orchestrator.delays import from_lines
from gradmux.orchestrator.fleets.replay_fleet import ReplayDiverged, ReplayFleet
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Backup, Earliest, Limits, Mu, WaitPolicy
from gradmux.orchestrator.record import Decoded, EndLine, Line, MemoryRecord, RoundLine
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.simulate import NoTrainer, Simulation, SimulationOptions, simulate
from tests.end_to_end.stage import DRAIN_S, Job, Played, Stage
from tests.end_to_end.test_exactness import PLANS, Params

FOUR = {"plans": PLANS, "steps": 3}
MSGC: Params = {"B": 1, "W": 2, "lambda": 3}
UNTIL, ALL = Mu(0.3), Mu(0.3, wait_out="all", straggler_model="bursty")
CASES: list[tuple[str, Params, WaitPolicy, Limits]] = [
    ("uncoded", {}, Earliest(), Limits()),
    ("gc", {"s": 2}, Earliest(), Limits(in_flight_cap=0.2)),
    ("gc", {"s": 2, "code": "cyclic"}, UNTIL, Limits()),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 3}, Earliest(), Limits()),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 3}, ALL, Limits(harvest_late=False)),
    ("m-sgc", MSGC, Earliest(), Limits()),
    ("m-sgc", MSGC, UNTIL, Limits()),
    ("backup", {"q": 0.75, "mu": 0.5}, Earliest(), Limits()),
    ("pipeline", {"n": 5, "s": 1}, Earliest(), Limits(concurrency=16)),
    ("gc", {"s": 1}, Earliest(), Limits(backup=Backup(share=0.5, slack=0.2), deadline_s=1.5, approximate=True)),
]


def play(stage: Stage, job: Job, *, time_scale: float = 0.02, faults: bool = True) -> Played:
    stage.lambda_like(time_scale, workers=8, seed=11)
    rates = (FaultRate(FaultKind.CRASH, 0.03), FaultRate(FaultKind.THROTTLE, 0.1), FaultRate(FaultKind.ERROR, 0.03))
    early = (ScheduledFault(0, 0, FaultKind.CRASH), ScheduledFault(1, 3, FaultKind.THROTTLE))
    stage.emulator.set_faults(FaultPlan(rates, early, 4) if faults else FaultPlan())
    return stage.play(job)


def replay(played: Played, job: Job) -> list[Line]:
    """The record that `job` makes over the answers of a recorded run."""
    record, scheme = MemoryRecord(), job.new_scheme()
    loop = Loop(
        plan=job.plan,
        rounds=Rounds(scheme, job.plan, job.wait, job.limits),
        fleet=ReplayFleet(played.lines),
        trainer=NoTrainer(),
        recorder=record,
    )
    loop.run()
    loop.drain(DRAIN_S)
    return record.lines


def decisions(lines: list[Line]) -> list[Line]:
    """The record without what only tensors, or the clock while they were added up, can tell."""
    return [_decided(line) for line in lines if isinstance(line, RoundLine | EndLine)]


def _decided(line: RoundLine | EndLine) -> Line:
    bare = tuple(_bare(item) for item in line.decoded)
    return (
        structs.replace(line, decoded=bare)
        if isinstance(line, RoundLine)
        else structs.replace(line, decoded=bare, at_s=0.0)
    )


def _bare(item: Decoded) -> Decoded:
    return structs.replace(item, at_s=0.0, loss=0.0, count=0, correct=0, gradient_norm=0.0)


@pytest.mark.parametrize(("scheme", "params", "wait", "limits"), CASES, ids=str)
def test_a_record_replays_to_the_same_decisions(
    stage: Stage, scheme: str, params: Params, wait: WaitPolicy, limits: Limits
) -> None:
    job = Job(scheme=scheme, params=params, wait=wait, limits=replace(limits, attempts=6), **FOUR)
    played = play(stage, job)
    assert {item.outcome for item in played.heard} > {"ok"}, "somebody failed"
    assert any(item.attempt > 1 for item in played.heard)
    assert decisions(replay(played, job)) == decisions(list(played.lines))


def test_late_answers_are_part_of_it(stage: Stage) -> None:
    played = play(stage, Job(scheme="m-sgc", params=MSGC, limits=Limits(attempts=6), **FOUR))
    ends = {line.round: line.end_s for line in played.rounds}
    assert any(item.at_s > ends[item.round] for item in played.heard)


def test_a_replay_under_another_policy_shows_that_it_is_another(stage: Stage) -> None:
    """So that the comparison above can fail."""
    job = Job(scheme="gc", params={"s": 2}, **FOUR)
    played = play(stage, job, faults=False)
    assert differs(played, replace(job, wait=Mu(5.0)))
    assert not differs(played, job)


def differs(played: Played, job: Job) -> bool:
    """Would `job` have decided otherwise?"""
    try:
        return decisions(replay(played, job)) != decisions(list(played.lines))
    except ReplayDiverged:
        return True  # it asked for what was never sent


# --- the same delays in virtual time -----------------------------------------------------------------------------


def simulated(played: Played) -> Simulation:
    job = played.job
    profile = from_lines(played.lines, name="real run")
    assert np.isfinite(profile.delays_s).all()
    options = SimulationOptions(
        jobs=job.plan.jobs, models=job.plan.models, wait=job.wait, limits=job.limits, workers=job.workers, seed=job.seed
    )
    return simulate(profile.delays_s, job.scheme, dict(job.params), options)


SIMULATED: list[tuple[str, Params, WaitPolicy]] = [
    ("uncoded", {}, Earliest()),
    ("gc", {"s": 2}, Earliest()),
    ("gc", {"s": 2, "code": "cyclic"}, UNTIL),
    ("m-sgc", MSGC, Earliest()),
    ("m-sgc", MSGC, ALL),
]


@pytest.mark.parametrize(("scheme", "params", "wait"), SIMULATED, ids=str)
def test_its_delays_simulated_take_the_run_s_time(stage: Stage, scheme: str, params: Params, wait: WaitPolicy) -> None:
    """Round by round the very same, where answers of earlier rounds do not count."""
    job = Job(scheme=scheme, params=params, wait=wait, limits=Limits(harvest_late=False), **FOUR)
    for time_scale in (0.02, 0.1, 0.5):  # the busier the machine, the longer the delays that make anybody late
        played = play(stage, job, time_scale=time_scale, faults=False)
        twin = simulated(played)
        assert twin.durations == pytest.approx([line.end_s - line.start_s for line in played.rounds], abs=1e-9)
        assert twin.total_s <= played.summary.wall_s
        if scheme == "uncoded" or any(line.late for line in played.rounds):
            return
    raise AssertionError("nobody was late")
