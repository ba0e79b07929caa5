"""Jobs that are chosen as they are dispatched: several steps at once, models that end early or join."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import Job, OpenPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.record import Decoded, Header, MemoryRecord, decode_line, encode_line
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.history import History
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, Scheme

COLUMNS = 16
LIMITS = Limits(concurrency=COLUMNS)


def pipeline(n: int, s: int, plan: OpenPlan) -> Scheme:
    """For as many jobs as there could be: one for each step."""
    context = Context(COLUMNS, plan.steps * (plan.models + 1), plan.models, concurrency=COLUMNS)
    return build_scheme("pipeline", parse_params(get("pipeline"), {"n": n, "s": s}), context)


class Stretched:
    """A pipeline whose jobs have several steps: as many as `sizes` says in turn."""

    def __init__(self, inner: Scheme, sizes: Sequence[int]) -> None:
        self.inner, self._sizes = inner, cycle(sizes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def stretch(self, model: int, left: int) -> int:
        return next(self._sizes)


class Stepping:
    """A worker makes the steps of a job in a row, from the published weights; the client takes what comes of them."""

    def __init__(self, plan: OpenPlan, models: int) -> None:
        self.plan, self.weights, self.steps = plan, [float(m + 1) for m in range(models)], [0] * models
        self.snapshots: dict[int, float] = {}

    @staticmethod
    def after(weight: float, step: int) -> float:
        return 0.9 * weight + step

    def publish(self, job: int) -> None:
        assert self.plan.job(job).first == self.steps[self.plan.model(job)], "its weights are those that it starts from"
        self.snapshots[job] = self.weights[self.plan.model(job)]

    def compute(self, call: Invocation) -> dict[int, float]:
        (task,) = (each for each in call.slots if each is not None)
        job, weight = self.plan.job(task.job), self.snapshots[task.job]
        for step in range(job.first, job.end):
            weight = self.after(weight, step)
        return {call.slots.index(task): weight}

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        ((weight, one),) = ((result, factor) for result, factor in results if factor)
        assert one == 1.0
        self.weights[self.plan.model(job)], self.steps[self.plan.model(job)] = weight, self.plan.job(job).end
        return StepResult(loss=0.0, count=1, correct=0, gradient_norm=0.0)

    def retire(self, job: int) -> None:
        del self.snapshots[job]


@pytest.mark.parametrize("sizes", [(1,), (3,), (1, 4, 2)])
@pytest.mark.parametrize("ends", [(6, 6, 6), (2, 9, 0, 5)])
def test_jobs_of_several_steps_give_the_weights_of_single_ones(sizes: tuple[int, ...], ends: tuple[int, ...]) -> None:
    delays = np.random.default_rng(4).uniform(1.0, 9.0, size=(7, COLUMNS))
    plan = OpenPlan([0] * len(ends), ends)
    scheme: Any = Stretched(pipeline(2, 1, plan), sizes)
    trainer, record = Stepping(plan, len(ends)), MemoryRecord()
    fleet = ProfileFleet(DelayTable(delays, scheme.workers), LoadModel(slope_s=0.5), trainer.compute)
    rounds = Rounds(scheme, plan, Earliest(), LIMITS)
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=record)
    loop.run()
    loop.drain(1e9)
    for model, end in enumerate(ends):
        expected = float(model + 1)
        for step in range(end):
            expected = Stepping.after(expected, step)
        assert (trainer.steps[model], trainer.weights[model]) == (end, expected)
    lines = [decode_line(encode_line(line)) for line in record.lines]
    begun = [each for line in lines for each in getattr(line, "begun", ())]
    assert [Job(each.model, each.step, each.steps) for each in begun] == [plan.job(each.job) for each in begun]
    assert len(begun) == plan.jobs
    header = Header("r", "pipeline", {}, 2, len(ends), max(ends), 0, {}, {})
    history = History()
    for line in [header, *lines]:
        history.take(line)
    assert history.steps == list(ends), "the record tells how far each model got"


def test_a_model_that_ends_frees_its_turns_and_one_that_joins_takes_some() -> None:
    """Model 0 is pruned while its first job runs, model 2 joins at the same time: the run ends with what is left."""
    delays = np.full((4, COLUMNS), 1.0)
    plan = OpenPlan((0, 0), (50, 4))
    scheme, trainer, record = pipeline(1, 0, plan), Stepping(plan, 3), MemoryRecord()
    fleet = ProfileFleet(DelayTable(delays, scheme.workers), LoadModel(), trainer.compute)

    def decide(line: Decoded) -> None:
        if (line.model, line.step) == (0, 1):
            plan.end(0, 2)
            plan.add(end=3)

    rounds = Rounds(scheme, plan, Earliest(), LIMITS)
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=record, on_step=decide)
    loop.run()
    assert trainer.steps == [2, 4, 3]
