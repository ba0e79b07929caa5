"""The coded sum of one task: sum over chunks c of coefficient_c * (gradient sum, loss sum, counts, statistics) of c.

Redundant workers must agree to the last bit where the code's coefficients are 1, and closely enough that a decode with
large coefficients does not amplify the difference. Hence two ways:

    chunk by chunk   the rule, and the only way for models of fixed passes, each of which is a chunk here. A chunk's
                     gradient has the same bits whichever worker computes it; chunks are added in order, in float64
                     when the wire carries float64 although the model is float32.
    one pass         when coefficients differ from 1 and rounding in the model's dtype is accepted (the wire is not
                     wider than the model): per-sample losses are weighted, one backward serves all chunks. Not with
                     batch norm, dropout, or a loss that has no per-sample values.

Needs neither S3 nor a request; the orchestrator uses it as its reference. Shapes: p parameters, k sums.
Read `tasks.py` next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor

from gradmux.lambda_worker.buffers import FIXED_SUMS, SumIndex
from gradmux.lambda_worker.flat import flatten
from gradmux.lambda_worker.metrics import judge, metric_sums
from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.norms import recording, statistics_size
from gradmux.lambda_worker.outputs import changed
from gradmux.lambda_worker.partials import each_partial
from gradmux.lambda_worker.randomness import torch_random
from gradmux.lambda_worker.structure import Values, forward, joined, row_count

__all__ = ["Batch", "CodedSum", "coded_sum", "judge", "mixed", "spread_sum", "squared_distance"]

GradientOf: TypeAlias = Callable[[Model, Tensor], Tensor]
"""(model, loss) -> the gradient, flat"""


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one chunk."""

    inputs: Values
    """Each (samples, ...)."""
    target: Values
    """Each (samples, ...)."""
    coefficient: float = 1.0
    seed: int = 0
    """Of its random numbers: the number of its first pass."""

    @property
    def holds_first(self) -> bool:
        """Is it, or begins it with, the batch's first pass, after which the module's buffers count?"""
        return self.seed == 0

    @property
    def samples(self) -> int:
        return row_count(self.target)


@dataclass(frozen=True, slots=True)
class CodedSum:
    """Sums over samples, times the coefficients; never means."""

    gradient: Tensor
    """(p,)"""
    sums: Tensor
    """(k,) float64: `SumIndex`, (sum, count) of each metric, then batch-norm statistics."""
    buffers: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    """(b,) float64: `Model.changed_buffers` after the batch's first pass; (0,) without it, or when none has changed."""


def coded_sum(model: Model, batches: Sequence[Batch], seed: int = 0, wire: str = "float32") -> CodedSum:
    """The coded sum over these chunks at the model's loaded weights.

    `seed` is the job's, for dropout; `wire` the dtype that the result will travel in. The model's own exceptions pass.
    """
    wider = wire == "float64" and model.dtype is not torch.float64
    weighted = len(batches) > 1 and any(batch.coefficient != 1.0 for batch in batches)
    large = model.most_rows is not None and sum(batch.samples for batch in batches) > model.most_rows
    one_by_one = model.fixed or large or wider or bool(model.norms or model.metrics) or model.draws
    if weighted and not one_by_one and model.loss.separable:
        at_once = _one_pass(model, batches)
        if at_once is not None:
            return at_once
    return _chunk_by_chunk(model, batches, seed, torch.float64 if wider else model.dtype)


def spread_sum(model: Model, batch: Batch, most: int) -> CodedSum:
    """The plain sums of one chunk, with every so-manieth element of its gradient alone, `most` of them at most.

    It takes no memory for a whole gradient. Buffers start from what `Model.load` or `Model.hold` has seen.
    """
    return _chunk(model, batch, 0, lambda model, loss: _spread(model, loss, most))


def squared_distance(one: CodedSum, other: CodedSum) -> float:
    """||g - g'||^2 of the two gradient sums, in float64."""
    return float((one.gradient.double() - other.gradient.double()).square().sum())


def _chunk_by_chunk(model: Model, batches: Sequence[Batch], seed: int, dtype: torch.dtype) -> CodedSum:
    count = sum(parameter.numel() for parameter in model.parameters)
    gradient = torch.zeros(count, dtype=dtype)
    sums = torch.zeros(model.statistics_from + statistics_size(model.norms), dtype=torch.float64)
    buffers = torch.empty(0, dtype=torch.float64)
    for batch in batches:
        part = _chunk(model, batch, seed)
        gradient.add_(part.gradient.to(dtype), alpha=batch.coefficient)
        sums.add_(part.sums, alpha=batch.coefficient)
        if part.buffers.numel():
            buffers = batch.coefficient * part.buffers
    return CodedSum(gradient, sums, buffers)


def _chunk(model: Model, batch: Batch, seed: int, gradient_of: GradientOf | None = None) -> CodedSum:
    """The plain sums of one chunk: the same bits in every worker."""
    model.reset_buffers()
    with torch_random(mixed(seed, batch.seed)), recording(model.norms) as statistics:
        output = forward(model.module, batch.inputs)
        loss = model.loss.summed(output, batch.target)
        gradient = (gradient_of or _gradient)(model, loss.total)
    correct, predictions = judge(output, batch.target)
    sums = torch.zeros(model.statistics_from + statistics.numel(), dtype=torch.float64)
    sums[SumIndex.LOSS] = loss.total.detach()
    sums[SumIndex.SAMPLES] = batch.samples
    sums[SumIndex.CORRECT] = correct.sum()
    sums[SumIndex.PREDICTIONS] = predictions.sum()
    sums[SumIndex.COUNT] = loss.count
    sums[FIXED_SUMS : model.statistics_from] = metric_sums(model.metrics, changed(output, Tensor.detach), batch.target)
    sums[model.statistics_from :] = statistics
    if not model.fixed:
        model.require_buffers_kept()
    kept = model.changed_buffers() if model.fixed and batch.holds_first else None
    return CodedSum(gradient, sums) if kept is None else CodedSum(gradient, sums, kept)


def _one_pass(model: Model, batches: Sequence[Batch]) -> CodedSum | None:
    """All chunks in one forward and backward; None when the model draws random numbers or rows have no loss each."""
    model.reset_buffers()
    inputs = joined([batch.inputs for batch in batches])
    target = joined([batch.target for batch in batches])
    samples = torch.tensor([batch.samples for batch in batches])
    weights = torch.tensor([batch.coefficient for batch in batches], dtype=torch.float64).repeat_interleave(samples)
    with torch_random():
        before = torch.get_rng_state()
        output = forward(model.module, inputs)
        losses = model.loss.by_row(output, target)
        if not torch.equal(before, torch.get_rng_state()):
            model.draws = True
            return None
        if losses is None:
            return None
        gradient = _gradient(model, (losses.values * weights.to(losses.values.dtype)).sum())
    correct, predictions = judge(output, target)
    columns = (losses.values.detach().double(), torch.ones_like(weights), correct, predictions, losses.counts)
    sums = torch.stack(columns) @ weights
    return CodedSum(gradient, sums)


def _gradient(model: Model, loss: Tensor) -> Tensor:
    """(p,) gradient of a scalar; zero where a parameter is frozen or has no part in it."""
    trained = [parameter for parameter in model.parameters if parameter.requires_grad]
    partials = iter(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))
    found = [
        next(partials) if parameter.requires_grad else torch.zeros_like(parameter) for parameter in model.parameters
    ]
    return flatten(each.to_dense() if each.is_sparse else each for each in found)  # nn.Embedding(sparse=True)


def _spread(model: Model, loss: Tensor, most: int) -> Tensor:
    """Elements 0, k, 2 k, ... of the flat gradient, with the least k that leaves no more than `most`."""
    sizes = [parameter.numel() for parameter in model.parameters]
    first = [0, *accumulate(sizes)]
    step = max(1, -(-first[-1] // most))
    kept = [
        torch.zeros(len(range(-at % step, size, step)), dtype=model.dtype)
        for at, size in zip(first, sizes, strict=False)
    ]
    trained = [index for index, parameter in enumerate(model.parameters) if parameter.requires_grad]

    def take(place: int, part: Tensor) -> None:
        index = trained[place]
        kept[index] = part.reshape(-1)[-first[index] % step :: step].clone()

    each_partial(loss, [model.parameters[index] for index in trained], take)
    return torch.cat(kept)


def mixed(*seeds: int | str) -> int:
    """One seed of several numbers and names, well spread: neighbouring seeds give unrelated random numbers."""
    text = ",".join(str(seed) for seed in seeds).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
