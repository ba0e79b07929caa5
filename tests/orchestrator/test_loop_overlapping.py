"""The loop in virtual time when rounds overlap: plain gradient descent, under the concurrency, whatever the delays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop, RunSummary
from gradmux.orchestrator.policies import Backup, Earliest, Limits
from gradmux.orchestrator.ports import Fleet
from gradmux.orchestrator.record import MemoryRecord, RoundLine
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, FloatArray, Scheme
from tests.orchestrator.quadratic import QuadraticTrainer
from tests.orchestrator.test_loop import ComputingReplay

Values = dict[str, int | float | str]

CASES: list[tuple[str, Values]] = [
    ("pipeline", {"n": 3, "s": 0}),
    ("pipeline", {"n": 5, "s": 1}),
    ("pipeline", {"n": 6, "s": 5}),
    ("pipeline-auto", {"rho": 0.9}),
    ("pipeline-auto", {"rho": 0.4}),
]
COLUMNS, CONCURRENCY, MODELS = 16, 16, 3
SLOPE_S = 0.5


@dataclass
class Setup:
    """What a run is made of, beside its fleet."""

    name: str
    params: Values
    plan: JobPlan
    limits: Limits

    def scheme(self) -> Scheme:
        context = Context(COLUMNS, self.plan.jobs, self.plan.models, seed=3, concurrency=self.limits.concurrency)
        return build_scheme(self.name, parse_params(get(self.name), self.params), context)

    def run(self, scheme: Scheme, fleet: Fleet, trainer: QuadraticTrainer) -> tuple[MemoryRecord, RunSummary]:
        record = MemoryRecord()
        rounds = Rounds(scheme, self.plan, Earliest(), self.limits)
        loop = Loop(plan=self.plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=record)
        loop.run()
        return record, loop.drain(1e9)


@dataclass
class Played:
    setup: Setup
    scheme: Scheme
    trainer: QuadraticTrainer
    fleet: ProfileFleet
    record: MemoryRecord
    summary: RunSummary

    @property
    def lines(self) -> dict[int, RoundLine]:
        return {line.round: line for line in self.record.rounds}

    def sent_s(self, t: int) -> float:
        """When job t was first dispatched."""
        return min(group.at_s for line in self.record.rounds for group in line.sent if group.round == t)


def play(
    name: str,
    params: Values,
    delays: FloatArray,
    *,
    steps: int = 4,
    models: int = MODELS,
    limits: Limits | None = None,
    slope_s: float = SLOPE_S,
) -> Played:
    setup = Setup(name, params, JobPlan(models, steps), limits or Limits(concurrency=CONCURRENCY))
    scheme = setup.scheme()
    trainer = QuadraticTrainer(setup.plan, scheme.chunk_sizes)
    fleet = ProfileFleet(DelayTable(delays, scheme.workers), LoadModel(slope_s=slope_s), trainer.compute)
    record, summary = setup.run(scheme, fleet, trainer)
    return Played(setup, scheme, trainer, fleet, record, summary)


def assert_plain(played: Played) -> None:
    for got, expected in zip(played.trainer.weights, played.trainer.plain(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@st.composite
def delay_matrices(draw: st.DrawFn) -> FloatArray:
    """Fast answers near 1 s, some slow by up to 40 times, some failing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    slow = draw(st.sampled_from([0.0, 0.1, 0.4]))
    failing = draw(st.sampled_from([0.0, 0.05]))
    delays = rng.uniform(1.0, 1.3, size=(12, COLUMNS))
    delays = np.where(rng.random(delays.shape) < slow, delays * rng.uniform(1.5, 40.0, size=delays.shape), delays)
    return np.where(rng.random(delays.shape) < failing, np.inf, delays)


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
@settings(max_examples=20, deadline=None)
@given(delays=delay_matrices(), steps=st.sampled_from([1, 3, 8]), split=st.booleans())
def test_weights_are_those_of_plain_gradient_descent_under_the_concurrency(
    name: str, params: Values, delays: FloatArray, steps: int, split: bool
) -> None:
    limits = Limits(concurrency=CONCURRENCY, split=split, attempts=30)
    played = play(name, params, delays, steps=steps, limits=limits)
    assert_plain(played)
    assert played.fleet.peak <= CONCURRENCY
    assert played.summary.max_residual == 0.0
    assert sorted(played.trainer.order) == list(range(played.scheme.jobs)), "every job is applied exactly once"


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
@settings(max_examples=8, deadline=None)
@given(delays=delay_matrices())
def test_a_record_replays_to_the_same_decisions(name: str, params: Values, delays: FloatArray) -> None:
    first = play(name, params, delays, steps=8, limits=Limits(concurrency=CONCURRENCY, attempts=30))
    scheme = first.setup.scheme()
    trainer = QuadraticTrainer(first.setup.plan, scheme.chunk_sizes)
    record, _ = first.setup.run(scheme, ComputingReplay(first.record, trainer), trainer)
    assert record.lines == first.record.lines
    for got, expected in zip(trainer.weights, first.trainer.weights, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("name", "params"), CASES, ids=str)
def test_every_invocation_is_billed_late_and_needless_ones_too(name: str, params: Values) -> None:
    delays = np.random.default_rng(4).uniform(1.0, 9.0, size=(6, COLUMNS))
    played = play(name, params, delays, steps=5)
    sent = sum(len(group.workers) for line in played.record.rounds for group in line.sent)
    assert sent == played.summary.invocations
    assert played.summary.in_flight == 0
    assert played.summary.billed_s == pytest.approx(played.fleet.busy_s)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_the_example_of_pipeline() -> None:
    """M = 2, C = 7, n = 3, s = 2: job 2 starts with the second answer of job 0, whatever job 1 does."""
    delays = np.full((3, 3), 1.0)
    delays[0] = [1.0, 1.2, 30.0]
    delays[1] = [20.0, 20.0, 20.0]
    played = play("pipeline", {"n": 3, "s": 2}, delays, steps=2, models=2, limits=Limits(concurrency=7), slope_s=0.0)
    assert played.lines[0].end_s == 1.0
    assert played.sent_s(2) == 1.2
    assert played.lines[2].end_s == 2.2
    assert played.lines[1].end_s == 20.0
    assert played.record.rounds[-1].round == 3
    assert_plain(played)


def test_a_whole_dispatch_waits_and_a_split_one_does_not() -> None:
    """C = 4, n = 3: with one place free, two of the three must wait for job 0's stragglers, or all of them."""
    delays = np.array([[1.0, 5.0, 6.0], [1.0, 1.0, 1.0]])
    whole, split = (
        play("pipeline", {"n": 3, "s": 2}, delays, steps=2, models=1, limits=Limits(4, split=split), slope_s=0.0)
        for split in (False, True)
    )
    assert whole.sent_s(1) == 5.0
    assert split.sent_s(1) == 1.0
    assert split.lines[1].end_s == 2.0
    assert split.summary.invocations == 5, "what was not sent when the job decoded never is"
    assert_plain(split)


def test_the_model_that_lags_most_goes_first() -> None:
    """When model 1 comes back after its straggler, its third step goes out before model 0's tenth."""
    delays = np.full((20, 1), 1.0)
    delays[1] = 8.5
    played = play("pipeline", {"n": 1, "s": 0}, delays, steps=10, models=2, limits=Limits(concurrency=1), slope_s=0.0)
    order = [group.round for line in played.record.rounds for group in line.sent]
    assert order == list(range(20)), "one place for two models: always the lower step"


def test_more_workers_than_the_concurrency_are_refused() -> None:
    with pytest.raises(ConfigError, match="pipeline invokes 6 workers a round, but concurrency is 5"):
        play("pipeline", {"n": 6, "s": 0}, np.ones((2, COLUMNS)), limits=Limits(concurrency=5))


def test_a_late_group_is_invoked_again_by_the_scheme_s_own_policy() -> None:
    """pipeline-auto asks for backups at twice the first answer: a group of stragglers does not hold its job."""
    delays = np.full((1, COLUMNS), 1.0)
    slow = {1, 3, 8, 13}
    delays[0, list(slow)] = 50.0
    never = Limits(concurrency=32, backup=Backup(share=None, slack=None))
    patient = play("pipeline-auto", {}, delays, steps=3, models=1, limits=never)
    played = play("pipeline-auto", {}, delays, steps=3, models=1, limits=Limits(concurrency=32))
    again = {w for line in played.record.rounds for group in line.sent if group.attempt > 1 for w in group.workers}
    assert again
    assert again <= slow
    assert patient.summary.wall_s > 50.0
    assert played.summary.wall_s < 20.0
    assert all(group.attempt == 1 for line in patient.record.rounds for group in line.sent)
    assert_plain(played)
