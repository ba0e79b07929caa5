"""Aggregation in the cloud: the results of a job stay in the store, and workers sum a slice of the parameters each.

So the client moves about one model for each job instead of one for every result. The sum is bit for bit the one that
the client would have made (`lambda_worker/summation.py`). Knows neither schemes nor HTTP. Read next: `stored.py`,
`lambda_worker/reduce.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.buffers import NO_BUFFERS
from gradmux.lambda_worker.contract import (
    FIXED_SUMS,
    MAX_REPLY_BYTES,
    ContractError,
    Reduction,
    ReplyMode,
    Request,
    Source,
    base64_size,
    decode_result,
    result_size,
)
from gradmux.lambda_worker.messages import Dtype
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.ports import Arrival, Invocation, StepResult, Trainer
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.gradients import CodedResult, add_sums, held_buffers
from gradmux.orchestrator.training.stored import Shelf, StoredResult

log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
FETCHES = 8
"""into how many rounds the fetching of a large sum is cut"""
Send = Callable[[Sequence[tuple[Invocation, Request]]], Sequence[Arrival]]
StoredTerm = tuple[StoredResult, float]
Vector = NDArray[np.float32] | NDArray[np.float64]


class SumFailed(RunStopped):
    """A slice could not be summed in any attempt."""


class ReadsMany(Protocol):
    """What is asked of the store."""

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]: ...
    def get_range(self, key: str, start: int, end: int) -> bytes: ...
    def delete(self, keys: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What all sums of one life of a run have in common."""

    keys: Keys
    bucket: str
    epoch: int
    dtype: str
    """of results on the wire"""
    most: int
    """slices of one sum, at most"""
    attempts: int
    """tries per slice"""
    slice_bytes: int = SLICE_BYTES
    """a slice is not cut smaller: each reads so much of every result, with one request"""


class CloudSums:
    """Sums results that lie in the store, by invoking workers."""

    def __init__(self, setting: Setting, send: Send, store: ReadsMany, shelf: Shelf) -> None:
        """`send` invokes, and waits until all have answered; what it hears of the store is noted on the shelf."""
        self._setting, self._send, self._store, self._shelf = setting, send, store, shelf

    def total(self, job: int, terms: Sequence[StoredTerm]) -> CodedResult:
        """The weighted sum of all terms, which are removed. Raises SumFailed, and the store's errors."""
        used = [(result, weight) for result, weight in terms if weight != 0.0]
        assert used, f"job {job} has no result of any weight"
        gradient = self._sum_slices(job, used, self._edges(used[0][0]))
        sums = add_sums([(result.sums, weight) for result, weight in used])
        buffers = held_buffers(self._buffers(result) for result, _ in used)
        self._store.delete(self._shelf.finish(job))
        return CodedResult(gradient, sums, buffers, spare=True)

    def _buffers(self, result: StoredResult) -> NDArray[np.float64]:
        """(b,) the section before its gradient. At most a few results of a job have one, so the client reads it."""
        if not result.buffers:
            return NO_BUFFERS
        raw = self._store.get_range(result.key, result.offset - 8 * result.buffers, result.offset)
        return np.frombuffer(raw, dtype="<f8")

    def _edges(self, result: StoredResult) -> list[int]:
        """Where the parameter vector is cut: slices of nearly equal length."""
        item = np.dtype(self._setting.dtype).itemsize
        parameters = (result.size - result.offset) // item
        slices = slices_of(parameters * item, self._setting.most, self._setting.slice_bytes)
        return [parameters * index // slices for index in range(slices + 1)]

    def _sum_slices(self, job: int, terms: Sequence[StoredTerm], edges: Sequence[int]) -> Vector:
        """(p,) every slice's sum in its place; those that failed or came damaged are summed again, so often."""
        sources = tuple(Source(result.key, weight, result.offset, result.scale) for result, weight in terms)
        missing = dict(enumerate(pairwise(edges)))
        total: Vector = np.empty(edges[-1], summed_dtype(self._setting.dtype))
        for attempt in range(1, self._setting.attempts + 1):
            arrivals = self._send([self._call(job, part, attempt, sources, each) for part, each in missing.items()])
            troubles = {each.worker: each.error or each.outcome.value for each in arrivals if not each.slots}
            summed = {part: bounds for part, bounds in missing.items() if part not in troubles}
            troubles |= self._fetch(job, summed, total)
            if not troubles:
                return total
            missing = {part: missing[part] for part in troubles}
            reason = next(iter(troubles.values()))
            log.warning("job %d: %d of its slices could not be summed: %s", job, len(troubles), reason)
        raise SumFailed(
            f"job {job}: a slice of its gradient could not be summed in {self._setting.attempts} attempts: {reason}"
        )

    def _fetch(self, job: int, slices: Mapping[int, tuple[int, int]], total: Vector) -> dict[int, str]:
        """Puts the sums of these slices into their places; what is wrong with those that are damaged, by slice.

        A few at a time: what is fetched comes on top of the model and its gradient.
        """
        troubles, parts = {}, list(slices)
        at_once = max(1, len(parts) // FETCHES)
        for start in range(0, len(parts), at_once):
            some = parts[start : start + at_once]
            bodies = self._store.view_many([self._out(job, slices[part][0]) for part in some])
            for part, body in zip(some, bodies, strict=True):
                lo, hi = slices[part]
                try:
                    gradient = decode_result(body).gradient
                except ContractError as error:
                    troubles[part] = f"its sum is damaged: {error}"
                else:
                    assert len(gradient) == hi - lo, "slices are as long as was asked"
                    total[lo:hi] = gradient
        return troubles

    def _out(self, job: int, lo: int) -> str:
        """Where a slice's sum lies."""
        return self._setting.keys.reduced(self._setting.epoch, job, lo)

    def _call(
        self, job: int, part: int, attempt: int, sources: tuple[Source, ...], bounds: tuple[int, int]
    ) -> tuple[Invocation, Request]:
        """One slice's request; `round` and `worker` of it say which job and slice."""
        setting, (lo, hi) = self._setting, bounds
        request = Request(
            op="reduce",
            run=setting.keys.run,
            epoch=setting.epoch,
            round=job,
            worker=part,
            attempt=attempt,
            bucket=setting.bucket,
            cancel=setting.keys.cancel,
            reply=ReplyMode(dtype=summed_dtype(setting.dtype), prefix=setting.keys.results),
            reduce=Reduction(job, sources, lo, hi, self._out(job, lo), cast(Dtype, setting.dtype)),
        )
        return Invocation(job, part, attempt, (), 0.0, setting.epoch), request


class CloudTrainer:
    """`ports.Trainer` over another one, whose results are summed in the cloud."""

    def __init__(self, trainer: Trainer, sums: CloudSums) -> None:
        self._trainer, self._sums = trainer, sums

    def publish(self, job: int) -> None:
        self._trainer.publish(job)

    def step(self, job: int, results: Sequence[StoredTerm]) -> StepResult:
        return self._trainer.step(job, [(self._sums.total(job, results), 1.0)])

    def retire(self, job: int) -> None:
        self._trainer.retire(job)


def slices_of(gradient_bytes: int, most: int, slice_bytes: int = SLICE_BYTES) -> int:
    """How many workers sum one gradient, a slice each."""
    return max(1, min(most, gradient_bytes // slice_bytes))


def pays(parameters: int, dtype: str) -> bool:
    """Is the result of so large a model too large for a reply, so that it goes through the store anyhow?"""
    return base64_size(result_size(parameters, FIXED_SUMS, dtype)) > MAX_REPLY_BYTES


def summed_dtype(dtype: str) -> Dtype:
    """What sums of results of this dtype travel in: as they decode, for float16 would round once more."""
    return "float64" if dtype == "float64" else "float32"
