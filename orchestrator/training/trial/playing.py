"""One pass of a model over some rows: outputs, loss and gradient, with all random numbers drawn from one seed.

Of a large model nothing is held twice: gradients are sketches (`sketch.py`), and parameters that are to come back wait
on disk (`waiting.py`). Knows nothing of what is concluded from a pass. Read next: `mixing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.partials import each_partial
from gradmux.lambda_worker.randomness import draws, torch_random
from gradmux.lambda_worker.structure import Values, forward
from gradmux.orchestrator.training.dataset import Array, Dataset
from gradmux.orchestrator.training.trial.sketch import BUCKETS, sketch
from gradmux.orchestrator.training.trial.waiting import on_disk

LARGE_BYTES = 64 * 2**20
"""of parameters, from which on a model is held once"""
GENERATORS = ("torch", "numpy", "numpy", "random")
"""whose states `randomness.draws` gives"""


@dataclass(frozen=True, slots=True)
class Played:
    """What a pass gave."""

    outputs: tuple[Tensor, ...]
    """all tensors of the model's output, without their graphs"""
    loss: float
    """sum over the rows"""
    count: float
    gradient: tuple[Tensor, ...]
    """of each trained parameter, dense; of a large model their sketches"""
    draws: tuple[str, ...]
    """of which generators numbers were drawn: torch, numpy, random"""


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Real rows, and how a model takes them."""

    dataset: Dataset
    dtype: torch.dtype

    def read(self, rows: Sequence[int]) -> tuple[Values, Values]:
        """(inputs, target) of these rows, in this order."""
        batch = self.dataset.batch(np.asarray(rows, dtype=np.int64), self.dtype)
        return batch.inputs, batch.target

    def columns(self, rows: Sequence[int]) -> tuple[dict[str, Array], Array]:
        """The same as they lie in the data set, by column, and their numbers."""
        ids = np.asarray(rows, dtype=np.int64)
        return dict(self.dataset.source.take(ids)), ids

    def blocks(self, count: int, size: int) -> list[list[int]]:
        """`count` lists of `size` rows, each spread over the whole data set; rows come again where it is too small."""
        wanted = count * size
        spread: Array = np.linspace(0, self.dataset.rows - 1, num=wanted).round().astype(int)
        return [spread[first::count].tolist() for first in range(count)]


@contextmanager
def all_random(seed: int) -> Iterator[list[str]]:
    """Within it torch, numpy and `random` draw from `seed` on; after it, as before. Fills in which of them did."""
    drawn: list[str] = []
    with torch_random(seed):
        at_first = draws()
        try:
            yield drawn
        finally:
            pairs = zip(GENERATORS, at_first, draws(), strict=True)
            drawn += dict.fromkeys(name for name, before, after in pairs if before != after)


def play(model: Model, rows: tuple[Values, Values], seed: int = 0) -> Played:
    """One forward and backward at the weights and buffers as they are. The model's own exceptions pass."""
    inputs, target = rows
    trained = [parameter for parameter in model.parameters if parameter.requires_grad]
    with all_random(seed) as drawn:
        output = forward(model.module, inputs)
        summed = model.loss.summed(output, target)
        gradient = _gradient(summed.total, trained, large=is_large(model.module))
    outputs = tuple(each.detach() for each in tensors_in(output))
    return Played(outputs, float(summed.total.detach()), summed.count, gradient, tuple(drawn))


def is_large(module: nn.Module) -> bool:
    """Is the module to be held once at most?"""
    return sum(each.nbytes for each in module.parameters()) > LARGE_BYTES


def _gradient(loss: Tensor, trained: Sequence[Tensor], *, large: bool) -> tuple[Tensor, ...]:
    """Of each parameter, zero where it has no part in the loss."""
    if not large:
        found = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
        return tuple(each.to_dense() if each.is_sparse else each for each in found)
    sketches: dict[int, Tensor] = {}

    def take(index: int, part: Tensor) -> None:
        sketches[index] = sketch(part)

    each_partial(loss, trained, take)
    return tuple(
        sketches[index] if index in sketches else torch.zeros(min(each.numel(), BUCKETS), dtype=each.dtype)
        for index, each in enumerate(trained)
    )


def tensors_in(output: Any) -> Iterator[Tensor]:
    """All tensors of an output of any structure, in order."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        yield from (each for value in output.values() for each in tensors_in(value))
    elif isinstance(output, tuple | list):
        yield from (each for value in output for each in tensors_in(value))
    elif is_dataclass(output) and not isinstance(output, type):
        yield from (each for field in fields(output) for each in tensors_in(getattr(output, field.name, None)))


@contextmanager
def buffers_kept(module: nn.Module) -> Iterator[None]:
    """After it, buffers of every type are what they were before, also those that were set anew."""
    owners = [(layer, dict(layer._buffers)) for layer in module.modules() if layer._buffers]
    before = [each.detach().clone() for each in module.buffers()]
    try:
        yield
    finally:
        for layer, buffers in owners:
            layer._buffers.update(buffers)
        _set([*module.buffers()], before)


@contextmanager
def state_kept(module: nn.Module) -> Iterator[None]:
    """The same for parameters, too."""
    parameters = [*module.parameters()]
    kept = on_disk(parameters) if is_large(module) else _in_memory(parameters)
    with buffers_kept(module), kept:
        yield


@contextmanager
def _in_memory(tensors: Sequence[Tensor]) -> Iterator[None]:
    before = [each.detach().clone() for each in tensors]
    try:
        yield
    finally:
        _set(tensors, before)


@torch.no_grad()
def _set(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        if not same(tensor, value):
            tensor.copy_(value)


def same(one: Tensor, other: Tensor) -> bool:
    """Equal to the last bit; NaN is NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.equal(one, other):
        return True
    numbers = torch.equal(one.isnan(), other.isnan())
    return numbers and torch.equal(one.nan_to_num(), other.nan_to_num())


def apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The largest difference between two lists of tensors, relative to the largest element of each; inf where shapes
    or types differ.
    """
    if [(each.shape, each.dtype) for each in one] != [(each.shape, each.dtype) for each in other]:
        return float("inf")
    return max((_difference(mine, theirs) for mine, theirs in zip(one, other, strict=True)), default=0.0)


def _difference(one: Tensor, other: Tensor) -> float:
    if same(one, other) or one.numel() == 0:
        return 0.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = one.to(wide).nan_to_num(), other.to(wide).nan_to_num()
    size = max(float(one.abs().max()), float(other.abs().max()), 1e-30)
    return float((one - other).abs().max()) / size
