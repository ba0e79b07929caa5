"""Snapshots never change: who reads late, or is asked again when the model has moved on, still sees the old weights."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.store import Keys
from tests.end_to_end.stage import IN_STORE, Job, Played, Stage
from tests.end_to_end.test_exactness import PLANS

IN_REQUESTS = 1 << 20
"""`inline_bytes` with which every snapshot here travels in the requests"""
Bits = tuple[bytes, bytes]


@pytest.mark.parametrize("inline_bytes", [IN_REQUESTS, IN_STORE], ids=["in requests", "in the store"])
def test_an_old_task_gives_the_same_bits_after_the_model_has_stepped(stage: Stage, inline_bytes: int) -> None:
    """Two sandboxes compute job 0: one at once, one that has read nothing yet when all models have stepped."""
    job = Job(scheme="uncoded", plans=PLANS, workers=2, steps=2, inline_bytes=inline_bytes)
    run, scheme = stage.new_run(job), job.new_scheme()
    trainer = stage.trainer(job, run)
    builder = stage.builder(job, run, trainer, scheme)
    models = job.plan.models
    with stage.fleet(run, builder) as fleet:

        def ask(t: int, worker: int, attempt: int, of: int = 0) -> Arrival:
            """What `worker` answers to the task that worker `of` has in round t."""
            fleet.invoke([Invocation(t, worker, attempt, tasks[t][of], load=0.5)])
            arrival = fleet.next(None)
            assert arrival is not None
            assert arrival.outcome is Outcome.OK, arrival.error
            return arrival

        tasks = {}
        for t in range(models):
            tasks[t] = scheme.assign(t)
            trainer.publish(t)
        early = ask(0, 0, 1)
        halves = {t: [ask(t, worker, 1, of=worker) for worker in range(2)] for t in range(models)}
        for t in range(models):
            trainer.step(t, [(answer.results[0], 1.0) for answer in halves[t]])
        for t in range(models, 2 * models):
            tasks[t] = scheme.assign(t)
            trainer.publish(t)
        late = ask(0, 7, 2)
        moved_on = ask(models, 7, 1)
    assert bits(late) == bits(early)
    assert bits(moved_on) != bits(early), "the model has moved, so this test can fail"
    assert bool(stage.store.list(f"{Keys(run).prefix}weights/")) == (inline_bytes == IN_STORE)


def bits(arrival: Arrival) -> Bits:
    (result,) = arrival.results.values()
    return result.gradient.tobytes(), result.sums.tobytes()


def test_whoever_reads_late_in_a_run_sees_what_the_first_saw(stage: Stage) -> None:
    """One model and two groups: rounds close by the first answers, most workers compute when the model has moved."""
    job = Job(
        scheme="gc",
        params={"s": 3},
        plans=PLANS[-1:],
        workers=10,
        steps=8,
        inline_bytes=IN_STORE,
        limits=Limits(concurrency=20),
    )
    played = stage.play(job)
    assert late_answers(played) >= 10
    by_task: dict[tuple[int, int], set[Bits]] = defaultdict(set)
    scheme = job.new_scheme()
    chunks = {t: {worker: task[0].chunks[0] for worker, task in scheme.assign(t).items()} for t in range(job.steps)}  # type: ignore[union-attr]
    for arrival in played.arrivals:
        by_task[arrival.round, chunks[arrival.round][arrival.worker]].add(bits(arrival))
    assert len(by_task) == job.steps * 2
    assert all(len(answers) == 1 for answers in by_task.values())
    assert len({answer for answers in by_task.values() for answer in answers}) == len(by_task), "no two tasks are alike"


def late_answers(played: Played) -> int:
    ends = {line.round: line.end_s for line in played.rounds}
    return int(np.sum([item.at_s > ends[item.round] for item in played.heard]))
