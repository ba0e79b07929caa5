"""Aggregation in the cloud: the results of a job stay in the store, and workers sum a slice of the parameters each.

So the client moves about one model for each job instead of one for every result. The sum is bit for bit the one that
the client would have made (`lambda_worker/summation.py`). What is read of a result is held against the checksum that
came with it: of one that is lost or damaged the call is repeated. Knows neither schemes nor HTTP. Read next:
`summing.py`, `stored.py`, `lambda_worker/reduce.py`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from gradmux.lambda_worker.contract import (
    FIXED_SUMS,
    MAX_REPLY_BYTES,
    ContractError,
    Reduction,
    ReplyMode,
    Request,
    base64_size,
    result_size,
)
from gradmux.lambda_worker.messages import Dtype
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.ports import UNREADABLE, Arrival, Invocation, StepResult, Trainer
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.gradients import CodedResult, add_sums, held_buffers
from gradmux.orchestrator.training.stored import Shelf, StoredResult
from gradmux.orchestrator.training.summing import StoredTerm, Summing, first_line, summed_dtype

log = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
FETCHES = 8
"""into how many rounds the fetching of a large sum is cut"""
TRIES = 12
"""of one sum, at most, where replies come damaged: a sum is made again for less than a result"""
LOST_ONES = -1
"""in the place of a slice: results of the job"""
Send = Callable[[Sequence[tuple[Invocation, Request]]], Sequence[Arrival]]
Again = Callable[[Sequence[Invocation]], Sequence[Arrival]]


class SumFailed(RunStopped):
    """A gradient could not be summed in any attempt."""


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
    """how often a slice, or a result that is lost, may fail; replies that come damaged do not count"""
    slice_bytes: int = SLICE_BYTES
    """a slice is not cut smaller: each reads so much of every result, with one request"""


class CloudSums:
    """Sums results that lie in the store, by invoking workers."""

    def __init__(
        self, setting: Setting, send: Send, store: ReadsMany, shelf: Shelf, again: Again | None = None
    ) -> None:
        """`send` invokes, and waits until all have answered; `again` does the same with calls of a round whose results
        got lost, and notes on the shelf what is in the store then."""
        self._setting, self._send, self._store, self._shelf, self._again = setting, send, store, shelf, again

    def total(self, job: int, terms: Sequence[StoredTerm]) -> CodedResult:
        """The weighted sum of all terms, which are removed. Raises SumFailed, and the store's errors."""
        used = [(result, weight) for result, weight in terms if weight != 0.0]
        assert used, f"job {job} has no result of any weight"
        summing = Summing(job, used, self._edges(used[0][0]), np.dtype(self._setting.dtype).itemsize)
        self._sum(summing)
        sums = add_sums([(result.sums, weight) for result, weight in summing.terms])
        self._store.delete(self._shelf.finish(job))
        return CodedResult(
            summing.total, sums, held_buffers(summing.buffers[index] for index in sorted(summing.buffers)), spare=True
        )

    def _edges(self, result: StoredResult) -> list[int]:
        """Where the parameter vector is cut: slices of nearly equal length."""
        item = np.dtype(self._setting.dtype).itemsize
        parameters = (result.size - result.offset) // item
        slices = slices_of(parameters * item, self._setting.most, self._setting.slice_bytes)
        return [parameters * index // slices for index in range(slices + 1)]

    def _sum(self, this: Summing) -> None:
        """Every slice's sum in its place, of results that are what their workers put into the store.

        Slices that failed or came damaged are summed again; of results that are lost or damaged the call is repeated.
        """
        failures, reason = Counter[int](), ""
        for attempt in range(1, TRIES + 1):
            troubles = self._sum_missing(this, attempt, failures)
            lost = self._lost(this) if not troubles else this.known_lost()
            if not lost and not troubles:
                return
            if lost and failures[LOST_ONES] < self._setting.attempts:
                failures[LOST_ONES] += 1
                troubles |= self._compute_again(this, lost, attempt)
            elif lost:
                break
            reason = next(iter(troubles.values()))
            log.warning("job %d: its sum is not complete yet: %s", this.job, reason)
            if max((failures[part] for part in failures if part != LOST_ONES), default=0) >= self._setting.attempts:
                break
        raise SumFailed(f"job {this.job}: its gradient could not be summed in {attempt} attempts: {reason}")

    def _sum_missing(self, this: Summing, attempt: int, failures: Counter[int]) -> dict[int, str]:
        """Has the missing slices summed; what is wrong with those that are still missing, one line each."""
        parts = list(this.missing)
        for part in parts:
            self._shelf.note(this.job, self._out(this, part, attempt))
        arrivals = self._send([self._call(this, part, attempt) for part in parts])
        troubles = {each.worker: first_line(each.error or each.outcome.value) for each in arrivals if not each.slots}
        fetched = self._fetch(this, [part for part in parts if part not in troubles], attempt)
        failures.update(part for part, reason in troubles.items() if not reason.startswith(UNREADABLE))
        failures.update(fetched.keys())
        return troubles | fetched

    def _fetch(self, this: Summing, parts: Sequence[int], attempt: int) -> dict[int, str]:
        """Puts the sums of these slices into their places; what is wrong with those that are damaged, by slice.

        A few at a time: what is fetched comes on top of the model and its gradient.
        """
        troubles = {}
        at_once = max(1, len(parts) // FETCHES)
        for start in range(0, len(parts), at_once):
            some = parts[start : start + at_once]
            bodies = self._views([self._out(this, part, attempt) for part in some])
            for part, body in zip(some, bodies, strict=True):
                try:
                    this.take(part, body)
                except ContractError as error:
                    troubles[part] = f"its sum is damaged: {error}"
        return troubles

    def _views(self, keys: Sequence[str]) -> Sequence[memoryview]:
        """Their contents; nothing for one that is not there."""
        try:
            return self._store.view_many(keys)
        except FileNotFoundError:
            return [view for key in keys for view in self._views([key])] if len(keys) > 1 else [memoryview(b"")]

    def _lost(self, this: Summing) -> list[int]:
        """Results that are not what their workers put into the store, when every slice has come."""
        for index, (result, _) in enumerate(this.terms):
            if result.buffers and index not in this.buffers:
                with suppress(FileNotFoundError):
                    raw = self._store.get_range(result.key, result.offset - 8 * result.buffers, result.offset)
                    if len(raw) == 8 * result.buffers:
                        this.buffers[index] = np.frombuffer(raw, dtype="<f8")
        return this.lost(self._setting.dtype)

    def _compute_again(self, this: Summing, lost: Sequence[int], attempt: int) -> dict[int, str]:
        """Repeats the calls of these results and puts what they answer in their place. Why sums are made again.

        Raises: SumFailed when it is not known what was asked.
        """
        calls = [this.call_again(index, attempt) for index in lost]
        if self._again is None or None in calls:
            raise SumFailed(f"job {this.job}: {this.terms[lost[0]][0].key} is lost or damaged in the store")
        keys = [this.terms[index][0].key for index in lost]
        log.warning("job %d: lost or damaged in the store, computed again: %s", this.job, ", ".join(keys))
        arrivals = self._again([call for call in calls if call is not None])
        reasons = [f"{keys[0]} was lost or damaged in the store"]
        for index, arrival in zip(lost, arrivals, strict=True):
            answer = arrival.results.get(this.terms[index][0].slot)
            if isinstance(answer, StoredResult):
                this.replace(index, answer)
            else:
                reasons.append(f"{this.terms[index][0].key} {first_line(arrival.error or arrival.outcome.value)}")
        this.begin_again()
        return {LOST_ONES: reasons[-1]}

    def _out(self, this: Summing, part: int, attempt: int) -> str:
        """Where a slice's sum lies."""
        return self._setting.keys.reduced(self._setting.epoch, this.job, this.bounds[part][0], attempt)

    def _call(self, this: Summing, part: int, attempt: int) -> tuple[Invocation, Request]:
        """One slice's request; `round` and `worker` of it say which job and slice."""
        setting, job, (lo, hi) = self._setting, this.job, this.bounds[part]
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
            reduce=Reduction(job, this.sources(), lo, hi, self._out(this, part, attempt), cast(Dtype, setting.dtype)),
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
