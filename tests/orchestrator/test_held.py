"""Results added as they arrive give the run that holds them all, to the last bit, and are not held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits, WaitPolicy
from gradmux.orchestrator.ports import Invocation, StepResult, Sums
from gradmux.orchestrator.record import MemoryRecord
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.asks import Place
from gradmux.orchestrator.schemes.scheme import FloatArray, Key, Task
from gradmux.orchestrator.training.gradients import CodedResult, combine
from gradmux.orchestrator.training.streamed_sums import StreamedSums
from tests.orchestrator.quadratic import QuadraticTrainer
from tests.orchestrator.test_loop import CASES, WORKERS, delay_matrices, policies, scheme_of

PIPELINE: tuple[str, dict[str, int | str]] = ("pipeline", {"n": WORKERS, "s": 1})


class CodedTrainer(QuadraticTrainer):
    """The same problem with float32 results, combined as real ones are."""

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        total = combine(results)
        assert total.sums[0] == pytest.approx(1.0 + job % 3), "sums travel with the gradients"
        return super().step(job, [(total.gradient.astype(np.float64), 1.0)])

    def compute(self, call: Invocation) -> Mapping[int, Any]:
        tasks = {slot: task for slot, task in enumerate(call.slots) if task is not None}
        return {
            slot: CodedResult(gradient.astype(np.float32), self._sums(tasks[slot]))
            for slot, gradient in super().compute(call).items()
        }

    def _sums(self, task: Task) -> FloatArray:
        """All samples of a job lie in chunk 0."""
        terms = zip(task.chunks, task.coefficients, strict=True)
        return np.array([sum(c * (1.0 + task.job % 3) for chunk, c in terms if chunk == 0)])


@dataclass
class CountedSums:
    """Sums that count what was added."""

    inner: StreamedSums = field(default_factory=StreamedSums)
    added: list[Place] = field(default_factory=list)

    def add(self, place: Place, result: Any) -> None:
        self.added.append(place)
        self.inner.add(place, result)

    def take(self, job: int) -> Any:
        return self.inner.take(job)


@dataclass
class Run:
    weights: list[FloatArray]
    record: MemoryRecord
    most_held: int


def play(
    name: str,
    params: dict[str, int | str],
    delays: FloatArray,
    sums: Sums | None,
    wait: WaitPolicy | None = None,
    limits: Limits | None = None,
) -> Run:
    probe = scheme_of(name, params, JobPlan(1, 1), delays.shape[1])
    plan = JobPlan(probe.delay + 1 + probe.overlapping, steps=3)
    scheme = scheme_of(name, params, plan, delays.shape[1])
    trainer, record = CodedTrainer(plan, scheme.chunk_sizes), MemoryRecord()
    fleet = ProfileFleet(DelayTable(delays, scheme.workers), LoadModel(slope_s=0.5), trainer.compute)
    rounds = Rounds(scheme, plan, wait or Earliest(), limits or Limits())
    held: list[int] = []
    loop = Loop(
        plan=plan,
        rounds=rounds,
        fleet=fleet,
        trainer=trainer,
        recorder=record,
        held=Held(sums),
        should_stop=lambda: held.append(loop.results_held),
    )
    loop.run()
    loop.drain(1e9)
    return Run(trainer.weights, record, max(held))


@pytest.mark.parametrize(("name", "params"), [*CASES, PIPELINE], ids=str)
@settings(max_examples=15, deadline=None)
@given(delays=delay_matrices(), wait=policies)
def test_weights_and_record_are_those_of_a_run_that_holds_everything(
    name: str, params: dict[str, int | str], delays: FloatArray, wait: WaitPolicy
) -> None:
    wait = Earliest() if name == "pipeline" else wait
    sums = CountedSums()
    held, added = play(name, params, delays, None, wait), play(name, params, delays, sums, wait)
    for one, other in zip(held.weights, added.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert held.record.lines == added.record.lines
    known_on_arrival = params.get("code", "fractional") == "fractional"
    assert bool(sums.added) is known_on_arrival
    assert (added.most_held == 0) is known_on_arrival
    assert len(set(sums.added)) == len(sums.added)


def test_results_that_no_decode_will_use_are_dropped_at_once() -> None:
    """gc with s = 2 over 7 workers: 2 groups; 5 of 7 answers are redundant, and no sum sees them."""
    delays, sums = np.linspace(1.0, 1.6, WORKERS)[None, :], CountedSums()
    run = play("gc", {"s": 2}, delays, sums)
    jobs = sum(len(line.decoded) for line in run.record.rounds)
    assert len(sums.added) == 2 * jobs
    assert run.most_held == 0
    assert play("gc", {"s": 2}, delays, None).most_held >= 2


def test_an_estimate_is_the_sum_of_what_has_come() -> None:
    delays = np.ones((1, 4))
    delays[0, 2] = 50.0
    limits = Limits(deadline_s=2.0, attempts=1, approximate=True)
    held, added = (play("uncoded", {}, delays, sums, limits=limits) for sums in (None, StreamedSums()))
    for one, other in zip(held.weights, added.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert held.record.lines == added.record.lines


def test_a_result_that_comes_twice_is_added_once() -> None:
    """A worker whose second message failed is invoked again, and sends the first one once more."""
    scheme, sums = scheme_of("gc-partial", {"m": 1, "s": 1}, JobPlan(1, 1), 2), CountedSums()
    scheme.assign(0)
    held, result = Held(sums), CodedResult(np.ones(3, np.float32), np.ones(1))
    held.serve(scheme)
    for key in (Key(0, 1, 0), Key(0, 1, 0), Key(0, 0, 0), Key(0, 0, 1), Key(0, 1, 0)):
        scheme.heard(key)
        held.put(key, result)
    assert [place.index for place in sums.added] == [1, 0, 2]
    ((total, weight),) = held.terms(0, scheme.decode(0))
    np.testing.assert_array_equal(total.gradient, [3.0, 3.0, 3.0])
    assert (weight, len(held)) == (1.0, 0)
