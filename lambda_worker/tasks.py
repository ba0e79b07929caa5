"""One task -> one result, whatever happens: the user's exceptions and non-finite numbers become failed results.

Does not know how results travel: here each has its buffer, `spill.py` decides. Read `handler.py` next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from gradmux.lambda_worker.buffers import NonFiniteResult, encode_result
from gradmux.lambda_worker.errors import describe
from gradmux.lambda_worker.gradient import Batch, CodedSum, coded_sum, mixed, squared_distance
from gradmux.lambda_worker.messages import Order, Result, Rows, Task, Term, Timing, Weights
from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.order import RowIds
from gradmux.lambda_worker.sandbox import Sandbox
from gradmux.lambda_worker.structure import Values, mapped

__all__ = [
    "Bench",
    "Stopwatch",
    "answer_task",
    "compute_task",
    "edges_within",
    "failed",
    "merged",
    "read_batches",
    "warm_task",
]


@dataclass(slots=True)
class Stopwatch:
    """Where the time of one invocation goes; seconds."""

    compute_s: float = 0.0
    read_s: float = 0.0
    write_s: float = 0.0
    began_s: float = field(default_factory=time.perf_counter)
    """when the request arrived"""

    @contextmanager
    def reading(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.read_s += time.perf_counter() - start

    @contextmanager
    def computing(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.compute_s += time.perf_counter() - start

    @contextmanager
    def writing(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.write_s += time.perf_counter() - start

    def timing(self, cold: bool) -> Timing:
        """The times so far, to the microsecond."""
        whole_s = time.perf_counter() - self.began_s
        return Timing(round(self.compute_s, 6), round(self.read_s, 6), round(self.write_s, 6), cold, round(whole_s, 6))


@dataclass(frozen=True, slots=True)
class Bench:
    """What a task is worked on with."""

    sandbox: Sandbox
    data: str
    """S3 key of the manifest."""
    wire: str
    """dtype of the result."""
    watch: Stopwatch


def answer_task(task: Task, bench: Bench) -> Result:
    """The task's result; never raises for what the task's own model, data or numbers do."""
    try:
        return compute_task(task, bench)
    except NonFiniteResult as error:
        return failed(task, f"NonFiniteResult: job {task.job}, slot {task.slot}: {error}")
    except Exception as error:  # the user's code may raise anything: the other slots must still answer
        return failed(task, describe(error))


def warm_task(task: Task, bench: Bench) -> Result | None:
    """Reads all that the task needs and computes its first term, for nothing; None, or why that failed."""
    try:
        model, batches = _prepare(task, task.terms[:1], bench)
        _at(task.weights, model, batches, task, bench)
    except Exception as error:  # as in `answer_task`
        return failed(task, describe(error))
    return None


def failed(task: Task, error: str) -> Result:
    return Result(task.slot, task.job, "failed", message=task.message, error=error)


def compute_task(task: Task, bench: Bench) -> Result:
    """The same, but raises whatever the task's own model, data or numbers do."""
    model, batches = _prepare(task, task.terms, bench)
    coded = _at(task.weights, model, batches, task, bench)
    distance = None
    if task.skip is not None:
        distance = squared_distance(coded, _at(task.skip.weights, model, batches, task, bench))
        if not math.isfinite(distance):
            raise NonFiniteResult(f"squared distance to the gradient at the reference weights is {distance}")
        if distance <= task.skip.threshold:
            return _skipped(task, coded, distance)
    buffer = encode_result(coded.gradient, coded.sums, bench.wire, coded.buffers)
    return Result(task.slot, task.job, "ok", message=task.message, distance=distance, buffer=buffer, size=len(buffer))


def _skipped(task: Task, coded: CodedSum, distance: float) -> Result:
    """The gradient stays here; its sums are small and exact, so they travel all the same."""
    encode_result(coded.gradient[:0], coded.sums)  # refuses sums that are not finite
    sums = tuple(coded.sums.tolist())
    return Result(task.slot, task.job, "skipped", message=task.message, distance=distance, sums=sums)


def _prepare(task: Task, terms: Sequence[Term], bench: Bench) -> tuple[Model, list[Batch]]:
    with bench.watch.reading():
        model = bench.sandbox.model(task.model)
    return model, read_batches(model, bench, task.order, task.step, task.passes, terms)


def read_batches(model: Model, bench: Bench, named: Order, step: int, count: int, terms: Sequence[Term]) -> list[Batch]:
    """The rows of these of the `count` passes of a step, as the model's forwards take them."""
    with bench.watch.reading():
        order, dataset = bench.sandbox.order(named, bench.data), bench.sandbox.dataset(bench.data)
        batches: list[Batch] = []
        pass_rows = math.ceil(order.batch_size / count)
        for first, end, coefficient in terms if model.fixed else merged(terms):
            edges = range(first, end + 1) if model.fixed else edges_within(first, end, pass_rows, model.most_rows)
            passes = [order.rows_of(step, count, *each) for each in pairwise(edges)]
            inputs, target = dataset.read(_rows(passes), model.dtype, order.epoch(step))
            cut = zip(edges, _parts(inputs, passes), _parts(target, passes), strict=False)
            batches += [Batch(x, y, coefficient, seed=number) for number, x, y in cut]
    return batches


def merged(terms: Sequence[Term]) -> list[Term]:
    """The same with neighbours that have one coefficient in one: free passes need not end where a chunk does."""
    found: list[Term] = []
    for term in terms:
        before = found[-1] if found else None
        if before is not None and before.end == term.first and before.coefficient == term.coefficient:
            found[-1] = Term(before.first, term.end, term.coefficient)
        else:
            found.append(term)
    return found


def edges_within(first: int, end: int, pass_rows: int, most_rows: int | None) -> list[int]:
    """Where passes [first, end), of up to `pass_rows` rows each, are cut so that no part has more than `most_rows`.

    A part has one pass at least.
    """
    width = end - first
    parts = 1 if most_rows is None else min(width, math.ceil(width / max(1, most_rows // pass_rows)))
    return [first + width * part // parts for part in range(parts + 1)]


def _rows(passes: Sequence[RowIds]) -> Rows:
    """All of them, in order, in one read."""
    return Rows.ascending(passes[0]) if len(passes) == 1 else Rows.of(np.concatenate(passes))


def _parts(values: Values, passes: Sequence[RowIds]) -> list[Values]:
    """The rows of each pass, in memory of their own: where a tensor begins can change the last bits of a product."""
    if len(passes) == 1:
        return [values]
    edges = [0, *accumulate(map(len, passes))]
    return [_part(values, lo, hi) for lo, hi in pairwise(edges)]


def _part(values: Values, lo: int, hi: int) -> Values:
    part: Values = mapped(lambda tensor: tensor[lo:hi].clone(), values)
    return part


def _at(weights: Weights, model: Model, batches: Sequence[Batch], task: Task, bench: Bench) -> CodedSum:
    """The coded sum at these weights."""
    with bench.watch.reading():
        snapshot = bench.sandbox.snapshot(weights, model)
    with bench.watch.computing():
        model.load(snapshot)
        return coded_sum(model, batches, mixed(task.seed, task.step), bench.wire)
