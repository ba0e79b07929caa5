"""An invocation, as the scheme wants it -> the contract's request, as a worker understands it.

The scheme says "chunk 7 with coefficient 1 for job 12"; here that becomes passes of a step's batch, the snapshot, the
model's spec and a seed; which rows these passes have, the worker finds out by itself. Knows neither codes nor HTTP.
Read `lambda_worker/messages.py` for the fields, then `fleets/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gradmux.lambda_worker.contract import (
    MAX_REPLY_BYTES,
    Order,
    ReplyMode,
    Request,
    Skip,
    State,
    Stretch,
    Task,
    Term,
    Weights,
)
from gradmux.lambda_worker.messages import Dtype, Mode
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import Plan
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes import scheme
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.data import DataRef
from gradmux.orchestrator.training.order import BatchOrder, chunk_bounds


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
    seeds: Sequence[int]
    """of the models' random numbers, by model: `TorchTrainer.seeds`"""
    wire: Wire = field(default_factory=Wire)
    passes: int | None = None
    """P of every batch; None: a pass is a row"""
    state: Callable[[int], State] | None = None
    """job -> reference to the state that a stretch starts from, asked for once for each copy"""
    stepped: Sequence[bool] = ()
    """is each model stepped by workers? empty: none is"""
    budget_s: float | None = None
    """seconds after which a worker begins no further step of a stretch"""
    state_reply_bytes: int = MAX_REPLY_BYTES
    """bytes of an encoded reply to a stretch, at most: what comes inline must fit into the next request"""


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
    """Makes requests; called for every attempt of every invocation."""

    def __init__(self, materials: RunMaterials, jobs: Plan, chunk_sizes: NDArray[np.float64]) -> None:
        """`chunk_sizes` are the scheme's, (chunks,) fractions of a batch."""
        self._run, self._jobs = materials, jobs
        self._plans = [_plan_of(order, chunk_sizes, materials.passes) for order in materials.orders]

    def build(self, call: Invocation) -> Request:
        """The request of one attempt. Every job in it must be published."""
        run = self._run
        if run.stepped and run.stepped[self._jobs.model(call.round)]:
            return self._stretch(call)
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

    def _stretch(self, call: Invocation) -> Request:
        """A job's steps in a row. Its round is its own, since only rounds that overlap have such jobs."""
        run, job = self._run, self._jobs.job(call.round)
        order, passes, _ = self._plans[job.model]
        assert run.state is not None
        stretch = Stretch(
            slot=0,
            job=call.round,
            model=run.specs[job.model],
            state=run.state(call.round),
            order=order,
            first=job.first,
            steps=job.steps,
            passes=passes,
            seed=run.seeds[job.model],
            done=run.keys.done(call.epoch, call.round),
            budget_s=run.budget_s,
        )
        reply = self._reply_mode(call)
        return Request(
            op="steps",
            run=run.keys.run,
            epoch=call.epoch,
            round=call.round,
            worker=call.worker,
            attempt=call.attempt,
            load=call.load,
            bucket=run.bucket,
            cancel=run.keys.cancel,
            data=run.data.key,
            reply=replace(reply, max_inline=min(reply.max_inline, run.state_reply_bytes)),
            stretches=(stretch,),
        )

    def _reply_mode(self, call: Invocation) -> ReplyMode:
        wire, keys, early = self._run.wire, self._run.keys, bool(call.early)
        mailed = early or wire.post
        return ReplyMode(
            mode=cast(Mode, wire.mode),
            dtype=cast(Dtype, wire.dtype),
            prefix=keys.mail(call.epoch, call.round) if mailed else keys.spill(call.round, call.worker),
            max_inline=wire.max_inline,
            early=early,
            post=wire.post,
        )

    def _task(self, slot: int, task: scheme.Task) -> Task:
        model, step = self._jobs.model(task.job), self._jobs.step(task.job)
        order, passes, bounds = self._plans[model]
        return Task(
            slot=slot,
            job=task.job,
            message=task.message,
            model=self._run.specs[model],
            weights=self._run.weights(task.job),
            order=order,
            step=step,
            passes=passes,
            terms=_terms(task, bounds),
            seed=self._run.seeds[model],
            skip=None if task.skip is None else self._skip(task.skip),
        )

    def _skip(self, skip: scheme.Skip) -> Skip:
        return Skip(self._run.weights(skip.reference), skip.threshold)


def _plan_of(
    order: BatchOrder, chunk_sizes: NDArray[np.float64], passes: int | None
) -> tuple[Order, int, tuple[int, ...]]:
    """How requests name the order of a model's batches, into how many passes they are cut, and where chunks begin."""
    passes = passes or order.batch_size
    named = Order(order.rows, order.batch_size, order.seed, order.shuffle)
    return named, passes, chunk_bounds(chunk_sizes, passes)


def _terms(task: scheme.Task, bounds: tuple[int, ...]) -> tuple[Term, ...]:
    """The passes of the task's chunks; a chunk has none when there are fewer passes than chunks."""
    found = (
        Term(bounds[chunk], bounds[chunk + 1], factor)
        for chunk, factor in zip(task.chunks, task.coefficients, strict=True)
    )
    return tuple(sorted(term for term in found if term.width))
