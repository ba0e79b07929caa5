"""Aggregation in the cloud: the results of a job stay in the store, and workers sum a slice of the parameters each.

So the client moves about one model for each job instead of one for every result. The sum is bit for bit the one that
the client would have made (`lambda_worker/summation.py`). Knows neither schemes nor HTTP. Read next: `stored.py`,
`lambda_worker/reduce.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lambda_worker.contract import (
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
from orchestrator.errors import RunStopped
from orchestrator.ports import Arrival, Invocation, StepResult, Trainer
from orchestrator.store import Keys
from orchestrator.training.gradients import CodedResult, add_sums
from orchestrator.training.stored import Shelf, StoredResult

log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
Send = Callable[[Sequence[tuple[Invocation, Request]]], Sequence[Arrival]]
StoredTerm = tuple[StoredResult, float]


class SumFailed(RunStopped):
    """A slice could not be summed in any attempt."""


class ReadsMany(Protocol):
    """What is asked of the store."""

    def get_many(self, keys: Sequence[str]) -> Sequence[bytes]: ...
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
        edges = self._edges(used[0][0])
        self._sum_slices(job, used, edges)
        parts = self._store.get_many([self._setting.keys.reduced(self._setting.epoch, job, lo) for lo in edges[:-1]])
        gradient = _joined(parts, edges)
        self._store.delete(self._shelf.finish(job))
        return CodedResult(gradient, add_sums([(result.sums, weight) for result, weight in used]))

    def _edges(self, result: StoredResult) -> list[int]:
        """Where the parameter vector is cut: slices of nearly equal length."""
        item = np.dtype(self._setting.dtype).itemsize
        parameters = (result.size - result.offset) // item
        slices = slices_of(parameters * item, self._setting.most, self._setting.slice_bytes)
        return [parameters * index // slices for index in range(slices + 1)]

    def _sum_slices(self, job: int, terms: Sequence[StoredTerm], edges: Sequence[int]) -> None:
        """Has every slice summed; those that failed again, as often as allowed."""
        sources = tuple(Source(result.key, weight, result.offset, result.scale) for result, weight in terms)
        missing = dict(enumerate(pairwise(edges)))
        for attempt in range(1, self._setting.attempts + 1):
            calls = [self._call(job, part, attempt, sources, bounds) for part, bounds in missing.items()]
            arrivals = self._send(calls)
            failures = [arrival for arrival in arrivals if not arrival.slots]
            if not failures:
                return
            missing = {arrival.worker: missing[arrival.worker] for arrival in failures}
            reason = failures[0].error or failures[0].outcome.value
            log.warning("job %d: %d of its slices could not be summed: %s", job, len(failures), reason)
        raise SumFailed(
            f"job {job}: a slice of its gradient could not be summed in {self._setting.attempts} attempts: {reason}"
        )

    def _call(
        self, job: int, part: int, attempt: int, sources: tuple[Source, ...], bounds: tuple[int, int]
    ) -> tuple[Invocation, Request]:
        """One slice's request; `round` and `worker` of it say which job and slice."""
        setting, (lo, hi) = self._setting, bounds
        out = setting.keys.reduced(setting.epoch, job, lo)
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
            reduce=Reduction(job, sources, lo, hi, out, setting.dtype),
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


def summed_dtype(dtype: str) -> str:
    """What sums of results of this dtype travel in: as they decode, for float16 would round once more."""
    return "float32" if dtype == "float16" else dtype


def _joined(parts: Sequence[bytes], edges: Sequence[int]) -> NDArray[np.float32] | NDArray[np.float64]:
    """The whole vector, of its slices' buffers. Raises SumFailed when one is damaged."""
    try:
        slices = [decode_result(part)[0] for part in parts]
    except ContractError as error:
        raise SumFailed(f"a slice of a summed gradient is damaged: {error}") from error
    lengths = [hi - lo for lo, hi in pairwise(edges)]
    assert [len(piece) for piece in slices] == lengths, "slices are as long as was asked"
    return np.concatenate(slices)
