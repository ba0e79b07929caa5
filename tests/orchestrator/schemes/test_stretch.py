"""`stretch` by hand, late copies, and any pattern of delays and failures: the same steps in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError, TaskFailed
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import Job, OpenPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.record import MemoryRecord, RoundLine
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.asks import Call
from gradmux.orchestrator.schemes.lateness import FEWEST, Lateness
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, FloatArray
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from gradmux.orchestrator.start import start_for

CALM = SimulationOptions(models=2, limits=Limits(concurrency=3))


class Counting:
    """Models whose weight after a step tells which steps were made, in which order; results come from workers."""

    def __init__(self, plan: OpenPlan, done: Sequence[int] = (), cut: int | None = None) -> None:
        """`cut`: no stretch makes more steps than this, as when its time is over."""
        self.plan, self.cut = plan, cut
        self.steps = list(done) or [0] * plan.models
        self.weights = [self.after(0, range(each)) for each in self.steps]

    @staticmethod
    def after(weight: int, steps: range) -> int:
        for step in steps:
            weight = hash((weight, step))
        return weight

    def compute(self, call: Invocation) -> dict[int, Any]:
        job = self.plan.job(call.round)
        made = job.steps if self.cut is None else min(job.steps, self.cut)
        return {0: (self.after(self.weights[job.model], range(job.first, job.first + made)), made)}

    def publish(self, job: int) -> None:
        assert self.plan.job(job).first == self.steps[self.plan.model(job)]

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        (((weight, made), one),) = results
        assert one == 1.0
        model = self.plan.model(job)
        self.weights[model], self.steps[model] = weight, self.steps[model] + made
        return StepResult(0.0, 1, 0, 0.0, steps=made)

    def retire(self, job: int) -> None:
        """Nothing is kept."""


def played(
    delays: FloatArray,
    params: dict[str, Any],
    ends: Sequence[int],
    *,
    done: Sequence[int] = (),
    concurrency: int = 8,
    cut: int | None = None,
    most: Sequence[int | None] = (),
) -> tuple[Counting, MemoryRecord, OpenPlan]:
    done = done or [0] * len(ends)
    plan = OpenPlan(done, ends, most)
    context = Context(8, plan.most_jobs, len(ends), concurrency=concurrency)
    scheme = build_scheme("stretch", parse_params(get("stretch"), params), context)
    trainer, record = Counting(plan, done, cut), MemoryRecord()
    fleet = ProfileFleet(DelayTable(delays, scheme.workers), LoadModel(slope_s=0.1), trainer.compute)
    rounds = Rounds(scheme, plan, Earliest(), Limits(concurrency=concurrency, attempts=20))
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=record)
    loop.run()
    loop.drain(1e9)
    return trainer, record, plan


def test_by_hand() -> None:
    """The module's own example: job 1 waits for a place, until worker 1 has answered job 0 at 5 s."""
    delays = np.array([[9.0, 2.0], [4.0, 4.5], [1.0, 1.0], [1.0, 1.0]])
    slow = SimulationOptions(jobs=8, models=2, limits=Limits(concurrency=3), load=LoadModel(slope_s=1.0))
    simulation = simulate(delays, "stretch", {"copies": 2, "K": 3, "q": 1}, slow)
    begun = [(each.job, each.model, each.step, each.steps) for line in simulation.lines for each in line.begun]
    assert begun == [(0, 0, 0, 3), (1, 1, 0, 3), (2, 0, 3, 1), (3, 1, 3, 1)]
    lines = {line.round: line for line in simulation.lines}
    assert (lines[0].start_s, lines[0].end_s) == (0.0, 5.0)
    assert (lines[1].start_s, lines[1].end_s) == (5.0, 12.0), "1 in flight and 2 more are the 3 that may be"
    assert lines[2].start_s == 12.0, "both copies of job 1 are in flight until 12 s, and worker 0 of job 0"
    assert simulation.load == 3.0
    assert simulation.invocations == 8


@given(
    data=st.data(),
    steps=st.integers(1, 6),
    copies=st.integers(1, 4),
    ends=st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
@settings(max_examples=80, deadline=None)
def test_whatever_is_late_or_fails_the_steps_are_the_same(
    data: st.DataObject, steps: int, copies: int, ends: list[int]
) -> None:
    if not any(ends):
        return
    source = np.random.default_rng(data.draw(st.integers(0, 999)))
    delays = np.where(source.random((7, 8)) < 0.2, np.inf, source.exponential(1.0, (7, 8)) + 0.1)
    delays[:, 0] = 1.0
    quantile = data.draw(st.sampled_from([0.5, 0.9, 1.0]))
    done = [data.draw(st.integers(0, end)) for end in ends]
    most = data.draw(st.sampled_from([(), (None, *(2 for _ in ends[1:]))]))
    if done == ends:
        return
    params = {"copies": copies, "K": steps, "q": quantile}
    cut = data.draw(st.sampled_from([None, None, 2]))
    try:
        trainer, record, plan = played(delays, params, ends, done=done, most=most, cut=cut)
    except TaskFailed:
        return  # it drew 20 failures
    assert trainer.steps == ends
    assert trainer.weights == [Counting.after(0, range(end)) for end in ends]
    decoded = [each for line in record.lines for each in getattr(line, "decoded", ())]
    assert all(Job(each.model, each.step, each.steps) == plan.job(each.job) for each in decoded)
    for model, end in enumerate(ends):
        mine = sorted((each.step, each.step + each.steps) for each in decoded if each.model == model)
        assert [step for first, last in mine for step in range(first, last)] == list(range(done[model], end))


def test_one_answer_ends_a_job_and_a_late_one_is_asked_again() -> None:
    """Twelve jobs of 1 s, then one that hangs: a second copy goes out at the quantile, and the third at twice that."""
    delays = np.ones((13, 8))
    delays[12] = 500.0
    trainer, record, _ = played(delays, {"K": 2, "copies": 1}, (26,))
    assert trainer.steps == [26]
    last = next(line for line in record.lines if isinstance(line, RoundLine) and line.round == 12)
    took_s = 1.0 + 2 * 0.1
    assert [sent.at_s - last.start_s for sent in last.sent] == pytest.approx([0.0, took_s, 2 * took_s])
    assert [sent.attempt for sent in last.sent] == [1, 2, 3]


def test_nothing_is_late_before_enough_is_known_or_with_q_1() -> None:
    never, known = Lateness(1.0), Lateness(0.9)
    for number in range(FEWEST):
        assert known.limit_s(4.0) is None
        for each in (never, known):
            each.began(Call(number, 0, 1), 4.0, number)
            each.ended(Call(number, 0, 1), number + 3.0, True)
    assert never.limit_s(4.0) is None
    assert known.limit_s(4.0) == pytest.approx(3.0)


def test_what_is_in_flight_counts_and_longer_stretches_may_take_longer() -> None:
    estimate = Lateness(0.75)
    for number in range(40):
        load = 1.0 + number % 2
        estimate.began(Call(number, 0, 1), load, 0.0)
        estimate.ended(Call(number, 0, 1), 1.0 + 2.0 * load, True)
    assert estimate.limit_s(1.0) == pytest.approx(3.0)
    assert estimate.limit_s(3.0) == pytest.approx(7.0)
    for number in range(40, 80):
        estimate.began(Call(number, 0, 1), 1.0, 0.0)
    estimate.began(Call(99, 0, 1), 1.0, 90.0)
    estimate.ended(Call(99, 0, 1), 93.0, True)
    assert estimate.limit_s(1.0) == pytest.approx(6.0), "half of all take longer than anything that has come"


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"copies": 0, "K": 2}, "at least 1 worker"),
        ({"copies": 1, "K": 0}, "at least 1 step"),
        ({"copies": 1, "K": 1, "q": 0}, "0 < q <= 1"),
        ({"copies": 1}, "needs K (steps)"),
    ],
)
def test_what_does_not_fit_is_said(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_scheme("stretch", params, Context(4, 4))
    assert says in str(caught.value)


def test_more_copies_than_concurrency_are_refused() -> None:
    with pytest.raises(ConfigError, match="concurrency is 3"):
        simulate(np.ones((2, 8)), "stretch", {"copies": 4, "K": 2}, CALM)


def test_a_start_is_open_only_for_schemes_of_several_steps() -> None:
    assert isinstance(start_for(get("stretch"), (3, 0), 9, (4, 1)).plan, OpenPlan)
    assert not isinstance(start_for(get("pipeline"), (3, 0), 9).plan, OpenPlan)
    assert start_for(get("stretch"), (9, 9), 9).finished
