"""The loop in virtual time: whatever the delays, failures and policies, it does what plain gradient descent does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError, DeadlinePassed, TaskFailed
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.fleets.replay_fleet import ReplayDiverged, ReplayFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop, RunSummary
from gradmux.orchestrator.policies import Backup, Earliest, Limits, Mu, WaitPolicy
from gradmux.orchestrator.ports import Arrival, Invocation
from gradmux.orchestrator.record import EndLine, MemoryRecord, RoundLine
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, FloatArray, Scheme
from tests.orchestrator.quadratic import QuadraticTrainer

CASES: list[tuple[str, dict[str, int | str]]] = [
    ("uncoded", {}),
    ("gc", {"s": 2}),
    ("gc", {"s": 2, "code": "cyclic"}),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 3}),
    ("sr-sgc", {"B": 2, "W": 3, "lambda": 2, "code": "cyclic"}),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 2}),
    ("m-sgc", {"B": 2, "W": 3, "lambda": 3, "code": "cyclic"}),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 7}),
    ("gc-partial", {"m": 1, "s": 2, "code": "cyclic"}),
    ("gc-partial", {"m": 2, "s": 3}),
    ("grouping", {"G": 3}),
    ("backup", {}),
]
WORKERS = 7


def scheme_of(name: str, params: dict[str, int | str], plan: JobPlan, workers: int = WORKERS) -> Scheme:
    context = Context(workers=workers, jobs=plan.jobs, models=plan.models, seed=3)
    return build_scheme(name, parse_params(get(name), params), context)


@dataclass
class Played:
    scheme: Scheme
    trainer: QuadraticTrainer
    record: MemoryRecord
    summary: RunSummary

    @property
    def lines(self) -> list[RoundLine]:
        return self.record.rounds


def play(
    name: str,
    params: dict[str, int | str],
    delays: FloatArray,
    *,
    steps: int = 3,
    wait: WaitPolicy | None = None,
    limits: Limits | None = None,
    models: int | None = None,
) -> Played:
    probe = scheme_of(name, params, JobPlan(1, 1), delays.shape[1])
    plan = JobPlan(models or probe.delay + 1, steps)
    scheme = scheme_of(name, params, plan, delays.shape[1])
    trainer = QuadraticTrainer(plan, scheme.chunk_sizes)
    fleet = ProfileFleet(DelayTable(delays, scheme.workers), LoadModel(slope_s=0.5), trainer.compute)
    record = MemoryRecord()
    rounds = Rounds(scheme, plan, wait or Earliest(), limits or Limits())
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=record)
    loop.run()
    return Played(scheme, trainer, record, loop.drain(1e9))


def assert_plain(played: Played) -> None:
    tolerance = 1e-12 * max(1.0, played.summary.max_amplification)
    for got, expected in zip(played.trainer.weights, played.trainer.plain(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@st.composite
def delay_matrices(draw: st.DrawFn) -> FloatArray:
    """Fast answers near 1 s, some slow by up to 40 times."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    slow = draw(st.sampled_from([0.0, 0.1, 0.3, 0.6]))
    delays = rng.uniform(1.0, 1.3, size=(12, WORKERS))
    return np.where(rng.random(delays.shape) < slow, delays * rng.uniform(1.5, 40.0, size=delays.shape), delays)


policies: st.SearchStrategy[WaitPolicy] = st.one_of(
    st.just(Earliest()),
    st.builds(
        Mu,
        mu=st.sampled_from([0.0, 0.2, 1.0, 5.0]),
        wait_out=st.sampled_from(["until", "all"]),
        straggler_model=st.sampled_from(["bursty", "arbitrary", "either"]),
    ),
)


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
@settings(max_examples=25, deadline=None)
@given(delays=delay_matrices(), wait=policies, harvest=st.booleans(), cap=st.sampled_from([None, 0.0, 0.3]))
def test_weights_are_those_of_plain_gradient_descent(
    name: str, params: dict[str, int | str], delays: FloatArray, wait: WaitPolicy, harvest: bool, cap: float | None
) -> None:
    played = play(name, params, delays, wait=wait, limits=Limits(harvest_late=harvest, in_flight_cap=cap))
    assert_plain(played)
    assert played.summary.max_residual < 1e-8
    assert sorted(played.trainer.order) == list(range(played.scheme.jobs)), "every job is applied exactly once"


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
def test_each_job_decodes_by_its_deadline(name: str, params: dict[str, int | str]) -> None:
    rng = np.random.default_rng(5)
    delays = rng.exponential(1.0, size=(20, WORKERS)) + 1.0
    played = play(name, params, delays, steps=5, wait=Mu(0.5))
    for line in played.lines:
        for decoded in line.decoded:
            assert line.round - played.scheme.delay <= decoded.job <= line.round
    assert len(played.lines) == played.scheme.rounds


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
def test_failed_invocations_are_invoked_again_and_do_not_count_as_fast(name: str, params: dict[str, int | str]) -> None:
    rng = np.random.default_rng(1)
    delays = rng.uniform(1.0, 1.2, size=(10, WORKERS))
    delays[rng.random(delays.shape) < 0.15] = np.inf
    played = play(name, params, delays, limits=Limits(attempts=20))
    assert_plain(played)


def test_a_worker_that_always_fails_ends_the_run_with_its_name() -> None:
    delays = np.ones((3, 4))
    delays[1, :] = np.inf
    with pytest.raises(TaskFailed, match=r"round 1, worker \d \(job 1\) failed in 3 attempts: failed in the profile"):
        play("uncoded", {}, delays)


def test_too_few_models_are_refused_with_what_would_fit() -> None:
    with pytest.raises(ConfigError, match=r"m-sgc has delay T = 3 .* at least T \+ 1 = 4 models .* M = 2"):
        play("m-sgc", {"B": 2, "W": 3, "lambda": 2}, np.ones((5, WORKERS)), models=2)


def test_too_small_a_concurrency_is_refused() -> None:
    with pytest.raises(ConfigError, match="invokes 7 workers a round, but concurrency is 5"):
        play("uncoded", {}, np.ones((5, WORKERS)), limits=Limits(concurrency=5))


def test_stragglers_still_in_flight_delay_the_next_round_at_the_concurrency_limit() -> None:
    delays = np.ones((2, WORKERS))
    delays[0, 0] = 10.0
    free = play("gc", {"s": 2}, delays, steps=2)
    bound = play("gc", {"s": 2}, delays, steps=2, limits=Limits(concurrency=WORKERS))
    assert free.lines[1].start_s == free.lines[0].end_s < 2.0
    assert bound.lines[1].start_s > 9.9
    assert_plain(bound)


def test_in_flight_cap_holds_when_rounds_close() -> None:
    delays = np.random.default_rng(0).uniform(1, 5, size=(10, WORKERS))
    played = play("gc", {"s": 2}, delays, steps=8, limits=Limits(in_flight_cap=0.15))
    assert max(line.in_flight for line in played.lines[:-1]) <= 1


def test_a_late_result_counts_until_the_deadline_only_when_harvested() -> None:
    """n = 4, s = 1, cyclic: job 0 lacks an answer when round 0 closes, after 1.5 s, without workers 0 and 1.

    They answer 0.25 s later; worker 0 repeats job 0 in round 1, and is done with it after 1.25 s.
    """
    delays = np.full((6, 4), 1.0)
    delays[0, 0:2] = 1.5
    params: dict[str, int | str] = {"B": 1, "W": 2, "lambda": 2, "code": "cyclic"}
    strict = Mu(0.2, straggler_model="bursty")
    decoded_s = []
    for harvest in (True, False):
        played = play("sr-sgc", params, delays, wait=strict, limits=Limits(harvest_late=harvest))
        assert_plain(played)
        assert (played.lines[0].late, played.lines[0].end_s) == ((0, 1), 1.5)
        decoded_s += [decoded.at_s for line in played.lines for decoded in line.decoded if decoded.job == 0]
    assert decoded_s == [1.75, 2.75]


def test_backup_tasks_overtake_a_straggler() -> None:
    delays = np.ones((1, WORKERS))
    delays[0, 3] = 100.0
    plain = play("uncoded", {}, delays, steps=1)
    helped = play("uncoded", {}, delays, steps=1, limits=Limits(backup=Backup(share=0.8, slack=None)))
    assert plain.lines[0].end_s > 100
    assert helped.lines[0].end_s < 3
    assert helped.summary.invocations == WORKERS + 1
    assert helped.summary.billed_s == pytest.approx(plain.summary.billed_s + 1.0 + 0.5 / WORKERS)
    assert_plain(helped)


def test_a_passed_deadline_invokes_again_and_then_stops_resumably() -> None:
    delays = np.full((1, WORKERS), 50.0)
    delays[0, :3] = 1.0
    with pytest.raises(
        DeadlinePassed, match=r"`gradmux resume RUN --deadline-s S` .*, or submit again with approximate = true"
    ) as caught:
        play("uncoded", {}, delays, steps=1, limits=Limits(deadline_s=2.0, attempts=1))
    assert caught.value.exit_code == 5


def test_a_passed_deadline_with_approximate_goes_on_and_says_what_is_missing() -> None:
    delays = np.ones((1, 4))
    delays[0, 3] = 50.0
    played = play("uncoded", {}, delays, steps=2, limits=Limits(deadline_s=2.0, attempts=1, approximate=True))
    assert [d.missing for line in played.lines for d in line.decoded] == [0.25, 0.25]
    assert [line.end_s - line.start_s for line in played.lines] == [4.0, 4.0]


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
@settings(max_examples=10, deadline=None)
@given(delays=delay_matrices(), wait=policies)
def test_a_record_replays_to_the_same_decisions(
    name: str, params: dict[str, int | str], delays: FloatArray, wait: WaitPolicy
) -> None:
    first = play(name, params, delays, wait=wait)
    plan = first.trainer.plan
    again_trainer = QuadraticTrainer(plan, first.scheme.chunk_sizes)
    scheme = scheme_of(name, params, plan)
    record = MemoryRecord()
    loop = Loop(
        plan=plan,
        rounds=Rounds(scheme, plan, wait, Limits()),
        fleet=ComputingReplay(first.record, again_trainer),
        trainer=again_trainer,
        recorder=record,
    )
    loop.run()
    loop.drain(1e9)
    assert record.lines == first.record.lines
    for got, expected in zip(again_trainer.weights, first.trainer.weights, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_replay_under_other_parameters_says_that_it_diverged() -> None:
    delays = np.random.default_rng(2).uniform(1, 5, size=(6, WORKERS))
    first = play("uncoded", {}, delays)
    plan = JobPlan(2, 3)
    scheme = scheme_of("gc", {"s": 1}, plan)
    trainer = QuadraticTrainer(plan, scheme.chunk_sizes)
    fleet = ComputingReplay(first.record, trainer)
    loop = Loop(
        plan=plan,
        rounds=Rounds(scheme, plan, Earliest(), Limits()),
        fleet=fleet,
        trainer=trainer,
        recorder=MemoryRecord(),
    )
    with pytest.raises(ReplayDiverged):
        loop.run()


class ComputingReplay(ReplayFleet):
    """A replay that also computes what the recorded workers computed."""

    def __init__(self, record: MemoryRecord, trainer: QuadraticTrainer) -> None:
        super().__init__(record.lines)
        self._trainer = trainer
        self._answers: dict[tuple[int, int], Mapping[int, FloatArray]] = {}

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        for call in invocations:
            self._answers[(call.round, call.worker)] = self._trainer.compute(call)
        return super().invoke(invocations)

    def next(self, until_s: float | None) -> Arrival | None:
        arrival = super().next(until_s)
        if arrival is None or not arrival.slots:
            return arrival
        return replace(arrival, results=self._answers[(arrival.round, arrival.worker)])


def test_the_last_line_says_how_the_run_ended() -> None:
    played = play("uncoded", {}, np.ones((2, 3)))
    end = played.record.lines[-1]
    assert isinstance(end, EndLine)
    assert end.state == "done"
