"""An invocation, as the scheme wants it -> the contract's request, as a worker understands it.

The scheme says "chunk 7 with coefficient 1 for job 12"; here that becomes the rows of the data set, the snapshot, the
model's spec and a seed. Knows neither codes nor HTTP. Read `lambda_worker/messages.py` for the fields, then `fleets/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.contract import MAX_REPLY_BYTES, Chunk, ReplyMode, Request, Rows, Skip, Task, Weights
from gradmux.lambda_worker.gradient import mixed
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes import scheme
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.data import DataRef
from gradmux.orchestrator.training.order import KEPT_STEPS, BatchOrder, RowIds, chunk_bounds

NOTHING = Chunk(rows=Rows(lo=0, hi=1), coefficient=0.0)
"""What a task computes whose chunks have no rows in this batch: one row, times 0. Its result is zero, but decodes."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How results come back."""

    dtype: str = "float32"
    """of gradients: float32, float64 or float16; see `wire_dtype`"""
    mode: str = "auto"
    """auto (inline while the reply fits), inline or s3"""
    max_inline: int = MAX_REPLY_BYTES
    """bytes of an encoded reply, at most"""
    post: bool = False
    """the whole reply goes to the store too: for Event invocations"""


@dataclass(frozen=True, slots=True)
class RunMaterials:
    """What the requests of one run have in common: where everything lies, and which rows a step uses."""

    keys: Keys
    bucket: str
    data: DataRef
    specs: Sequence[str]
    """keys of the model specs, by model"""
    orders: Sequence[BatchOrder]
    """by model; models with the same seed share one"""
    weights: Callable[[int], Weights]
    """job -> reference to its published snapshot"""
    seed: int = 0
    """of dropout"""
    wire: Wire = field(default_factory=Wire)


def wire_dtype(dtypes: Iterable[str], *, binary: bool, half: bool = False) -> str:
    """The type in which gradients travel: that of the models; float64 when decode weights are not 0 or 1.

    `half` asks for float16. Raises ConfigError when the code would amplify its rounding.
    """
    if half and not binary:
        raise ConfigError('results = "float16" needs decode weights of 0 and 1: use code = fractional, or leave it out')
    if half:
        return "float16"
    return "float64" if not binary or "float64" in dtypes else "float32"


class RequestBuilder:
    """Makes requests; called for every attempt of every invocation, so everything that repeats is kept."""

    def __init__(self, materials: RunMaterials, jobs: JobPlan, chunk_sizes: NDArray[np.float64]) -> None:
        """`chunk_sizes` are the scheme's, (chunks,) fractions of a batch."""
        self._run, self._jobs = materials, jobs
        self._bounds = {order: chunk_bounds(chunk_sizes, order.batch_size) for order in materials.orders}
        self._chunks = lru_cache(KEPT_STEPS)(self._cut)
        self._seed = lru_cache(KEPT_STEPS)(self._mixed)

    def build(self, call: Invocation) -> Request:
        """The request of one attempt. Every job in it must be published."""
        run = self._run
        return Request(
            op="gradient",
            run=run.keys.run,
            epoch=call.epoch,
            round=call.round,
            worker=call.worker,
            attempt=call.attempt,
            load=call.load,
            bucket=run.bucket,
            cancel=run.keys.cancel,
            data=run.data.key,
            reply=self._reply_mode(call),
            tasks=tuple(self._task(slot, task) for slot, task in enumerate(call.slots) if task is not None),
        )

    def warm(self, call: Invocation) -> Request:
        """The same, but the worker only reads and tries what it will need, and answers itself."""
        request = self.build(call)
        return replace(request, op="warm", reply=replace(request.reply, early=False, post=False))

    def _reply_mode(self, call: Invocation) -> ReplyMode:
        wire, keys, early = self._run.wire, self._run.keys, bool(call.early)
        mailed = early or wire.post
        return ReplyMode(
            mode=wire.mode,
            dtype=wire.dtype,
            prefix=keys.mail(call.epoch, call.round) if mailed else keys.spill(call.round, call.worker),
            max_inline=wire.max_inline,
            early=early,
            post=wire.post,
        )

    def _task(self, slot: int, task: scheme.Task) -> Task:
        model, step = self._jobs.model(task.job), self._jobs.step(task.job)
        chunks = self._chunks(self._run.orders[model], step)
        terms = zip(task.chunks, task.coefficients, strict=True)
        present = [_scaled(chunk, factor) for index, factor in terms if (chunk := chunks[index]) is not None]
        return Task(
            slot=slot,
            job=task.job,
            message=task.message,
            model=self._run.specs[model],
            weights=self._run.weights(task.job),
            seed=self._seed(model, step),
            chunks=tuple(present) or (NOTHING,),
            skip=None if task.skip is None else self._skip(task.skip),
        )

    def _skip(self, skip: scheme.Skip) -> Skip:
        return Skip(self._run.weights(skip.reference), skip.threshold)

    def _cut(self, order: BatchOrder, step: int) -> Sequence[Chunk | None]:
        """Every chunk of one batch; None where it has no rows."""
        cut = order.chunks(step, self._bounds[order])
        return [Chunk(rows=_rows(ids), seed=index) if len(ids) else None for index, ids in enumerate(cut)]

    def _mixed(self, model: int, step: int) -> int:
        """The seed of one job; the chunk's index is mixed in by the worker."""
        return mixed(self._run.seed, model, step)


def _scaled(chunk: Chunk, coefficient: float) -> Chunk:
    return chunk if coefficient == 1.0 else replace(chunk, coefficient=coefficient)


def _rows(ids: RowIds) -> Rows:
    """Ascending row numbers, as a range where they are one."""
    first, last = int(ids[0]), int(ids[-1])
    return Rows(lo=first, hi=last + 1) if last - first + 1 == len(ids) else Rows.of(ids)
