"""One stretch -> one result: several optimizer steps of one model in a row, as the client would make them.

    the state, unless it is the one that this worker has made last -> for each step: rows by (seed, step), the sums of
    all passes, the step -> the state after them, with each step's figures

A step that diverges is a result, with the state before it. Between steps the worker looks now and then whether the run
is cancelled or another copy has answered, and whether its time is over. Does not know how results travel: `spill.py`
does. Read next: `handler.py`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.buffers import SumIndex
from gradmux.lambda_worker.digests import digest_of
from gradmux.lambda_worker.errors import describe
from gradmux.lambda_worker.gradient import Batch, CodedSum, coded_sum, mixed
from gradmux.lambda_worker.messages import CORRECT, Divergence, Figures, Result, State, Stretch, Stretched, Term
from gradmux.lambda_worker.sandbox import Sandbox, Stepping
from gradmux.lambda_worker.step import Stepped
from gradmux.lambda_worker.tasks import Bench, read_batches
from gradmux.lambda_worker.whole import encode_whole, load_whole

__all__ = ["LARGE_BYTES", "Watch", "answer_stretch", "compute_stretch", "warm_stretch"]

LARGE_BYTES = 4 * 2**20
"""A state from this size on is not written without another look whether it is still wanted."""

Keep = Callable[[int, bytes], str]
"""Puts the snapshot after a step into the store; its key."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a stretch looks for between its steps."""

    sandbox: Sandbox
    cancel: str | None
    """key of the run's cancel marker"""
    epoch: int
    began_s: float = field(default_factory=time.monotonic)

    def unwanted(self, stretch: Stretch, *, now: bool = False) -> bool:
        """Is the run cancelled, or has another copy answered? Looked up every 2 s at most, unless it must be `now`."""
        if self.cancel is not None and self.sandbox.cancelled_epoch(self.cancel) >= self.epoch:
            return True
        return stretch.done is not None and self.sandbox.has_appeared(stretch.done, now=now)

    def over(self, stretch: Stretch) -> bool:
        """Is its time over?"""
        return stretch.budget_s is not None and time.monotonic() - self.began_s >= stretch.budget_s


def answer_stretch(stretch: Stretch, bench: Bench, watch: Watch, keep: Keep) -> Result:
    """The stretch's result; never raises for what its own model, data or numbers do."""
    try:
        return compute_stretch(stretch, bench, watch, keep)
    except Exception as error:  # the user's code may raise anything
        return Result(stretch.slot, stretch.job, "failed", error=describe(error))


def warm_stretch(stretch: Stretch, bench: Bench) -> Result | None:
    """Builds the model and reads the rows of the first step, for nothing; None, or why that failed."""
    try:
        stepping = bench.sandbox.stepping(stretch.model)
        _batches(stepping, stretch, stretch.first, bench)
    except Exception as error:  # as in `answer_stretch`
        return Result(stretch.slot, stretch.job, "failed", error=describe(error))
    return None


@dataclass(slots=True)
class _Told:
    """Figures of the steps so far."""

    steps: list[Stepped] = field(default_factory=list)
    sums: list[CodedSum] = field(default_factory=list)

    def names(self) -> Iterable[str]:
        """Of metrics."""
        return self.steps[0].metrics if self.steps else ()

    def figures(self) -> Figures:
        columns = [each.sums.tolist() for each in self.sums]
        return Figures(
            loss=tuple(column[SumIndex.LOSS] for column in columns),
            count=tuple(column[SumIndex.COUNT] for column in columns),
            rows=tuple(round(column[SumIndex.SAMPLES]) for column in columns),
            gradient_norm=tuple(step.norm for step in self.steps),
            metrics={
                CORRECT: tuple((column[SumIndex.CORRECT], column[SumIndex.PREDICTIONS]) for column in columns),
                **{name: tuple(step.metrics[name] for step in self.steps) for name in self.names()},
            },
        )


def compute_stretch(stretch: Stretch, bench: Bench, watch: Watch, keep: Keep) -> Result:
    """The same as `answer_stretch`, but raises whatever the stretch's own model, data or numbers do."""
    with bench.watch.reading():
        stepping = bench.sandbox.stepping(stretch.model)
        _enter(stepping, stretch.state, bench.sandbox)
    stepping.at = ""  # whatever ends it early, this is not the state that it began with
    told, kept, diverged = _Told(), dict[str, str](), None
    for step in range(stretch.first, stretch.first + stretch.steps):
        if watch.unwanted(stretch):
            return Result(stretch.slot, stretch.job, "cancelled")
        if told.steps and watch.over(stretch):
            break
        coded, stepped = _step(stepping, stretch, step, bench)
        if stepped.diverged:
            diverged = Divergence(step, stepped.diverged)
            break
        told.steps.append(stepped)
        told.sums.append(CodedSum(coded.gradient[:0], coded.sums))
        if step in stretch.keep:
            with bench.watch.writing():
                kept[str(step)] = keep(step, flat.to_bytes(flat.snapshot(stepping.model.module)))
    return _result(stretch, stepping, bench, watch, Stretched(len(told.steps), told.figures(), diverged, kept))


def _result(stretch: Stretch, stepping: Stepping, bench: Bench, watch: Watch, stretched: Stretched) -> Result:
    raw = encode_whole(stepping.model, stepping.stepper)
    if len(raw) >= LARGE_BYTES and watch.unwanted(stretch, now=True):
        return Result(stretch.slot, stretch.job, "cancelled")
    stepping.at = hashlib.sha256(raw).hexdigest()
    return Result(stretch.slot, stretch.job, "ok", buffer=bytearray(raw), size=len(raw), stretch=stretched)


def _enter(stepping: Stepping, state: State, sandbox: Sandbox) -> None:
    """Puts the model into this state, which is nothing to do when it is there."""
    inline = state.raw("state")
    name = digest_of(state.key or "") if inline is None else hashlib.sha256(inline).hexdigest()
    if name != stepping.at:
        stepping.at = ""
        load_whole(stepping.model, stepping.stepper, sandbox.read(state.key or "") if inline is None else inline)


def _step(stepping: Stepping, stretch: Stretch, step: int, bench: Bench) -> tuple[CodedSum, Stepped]:
    """One step, with the arithmetic that client and workers share."""
    model = stepping.model
    batches = _batches(stepping, stretch, step, bench)
    with bench.watch.computing():
        model.hold()
        coded = coded_sum(model, batches, mixed(stretch.seed, step), bench.wire)
        model.reset_buffers()
        stepped = stepping.stepper.step(coded.gradient, coded.sums)
        if not stepped.diverged:
            model.set_buffers(coded.buffers)
    return coded, stepped


def _batches(stepping: Stepping, stretch: Stretch, step: int, bench: Bench) -> list[Batch]:
    """All passes of a step."""
    terms = (Term(0, stretch.passes),)
    return read_batches(stepping.model, bench, stretch.order, step, stretch.passes, terms)
