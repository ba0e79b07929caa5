"""Do the rows of a pass interact: does what one row is worth depend on which others are with it? And where?

For blocks A to D of real rows, in passes of one shape under one seed, so that every random mask is the same:

    grad(A, B) + grad(C, D) = grad(A, D) + grad(C, B)     iff the gradient is a sum over rows

It holds to rounding (3e-8 for an MLP, dropout or not) and misses by far where batches are normalised (0.78) or centred
(0.45). The same for losses and counts. It is tried at several sizes, as limits of capacity do not show at few rows, and
at other weights than the first, as zeros at the start hide what comes later. Shapes: each block has half a pass's rows.

Read next: `keeping.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.outputs import changed
from gradmux.lambda_worker.structure import forward
from gradmux.orchestrator.training.trial.playing import (
    Played,
    RowsOf,
    all_random,
    apart,
    buffers_kept,
    play,
    state_kept,
    tensors_in,
)

NOISE = 2e-6
"""relative: float32 that is summed in another order differs by less"""
NOISE_64 = 5e-7
"""the same in float64, in which a suspicion is looked into; 1e-7 there where parts are float32 all the same"""
NARROW_NOISE = 1e-4
"""where the model cannot be played in float64"""
FLOOR = 1e-3
"""of the whole gradient: smaller ones of single parameters are not judged by themselves"""
NUDGE = 0.03
"""how far weights are moved, relative to their own size"""


@dataclass(frozen=True, slots=True)
class Mixing:
    """Where rows interact."""

    where: str
    """the layer with its class, or the loss; for a sentence"""
    size: float
    """how far the two sums are apart, relative; 0: known from the layer's class alone"""


def find_mixing(model: Model, rows: RowsOf, sizes: Sequence[int]) -> Mixing | None:
    """Where the rows of passes of one of these sizes interact; None where they do not. Model's exceptions pass."""
    found = _mixing(model, rows, min(sizes), seed=0)
    if found is not None:
        return found
    with state_kept(model.module):
        nudge(model)
        return _mixing(model, rows, max(sizes), seed=1)


def mixing_now(model: Model, rows: RowsOf, sizes: Sequence[int], seed: int) -> Mixing | None:
    """The same at the weights as they are: a gate that opens late, a limit of capacity that is reached only now."""
    return next((found for size in sizes if (found := _mixing(model, rows, size, seed)) is not None), None)


def _mixing(model: Model, rows: RowsOf, size: int, seed: int) -> Mixing | None:
    blocks = rows.blocks(4, max(1, size // 2))
    off = _judged(model, rows, blocks, seed)
    return Mixing(name_place(model, rows, blocks, seed), off) if off > 0.0 else None


def _judged(model: Model, rows: RowsOf, blocks: list[list[int]], seed: int) -> float:
    """How far the two sums are apart; 0 where that is but rounding, which float64 decides."""
    found = _off(model, rows, blocks, seed)
    if model.dtype is torch.float64:
        return found if found > NOISE_64 else 0.0
    if found <= NOISE:
        return 0.0
    try:
        with in_double(model):
            precise = _off(model, RowsOf(rows.dataset, torch.float64), blocks, seed)
    except Exception:  # layers that take float32 alone
        return found if found > NARROW_NOISE else 0.0
    return precise if precise > NOISE_64 else 0.0


@contextmanager
def in_double(model: Model) -> Iterator[None]:
    """Within it, parameters and floating buffers are float64; after it the very same tensors as before."""
    wide = (torch.float32,)
    kept: list[tuple[Any, Tensor]] = []
    before_dtype, before_loss = model.dtype, model.loss
    places = [each for module in model.module.modules() for each in (*module._parameters.values(),) if each is not None]
    buffers = [
        (module, name, each)
        for module in model.module.modules()
        for name, each in module._buffers.items()
        if each is not None and each.dtype in wide
    ]
    try:
        for parameter in places:
            if parameter.dtype in wide:
                kept.append((parameter, parameter.data))
                parameter.data = parameter.data.double()
        for module, name, each in buffers:
            module._buffers[name] = each.double()
        model.dtype, model.loss = torch.float64, model.loss.to(torch.float64)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data
        for module, name, each in buffers:
            module._buffers[name] = each
        model.dtype, model.loss = before_dtype, before_loss


@torch.no_grad()
def nudge(model: Model) -> None:
    """Moves all trained weights a little, so that nothing is zero by the way it was initialised."""
    with all_random(1):
        for parameter in model.parameters:
            if parameter.requires_grad:
                size = float(parameter.abs().mean()) if parameter.numel() else 0.0
                parameter.add_(torch.randn_like(parameter), alpha=NUDGE * (size or 1.0))


def _off(model: Model, rows: RowsOf, blocks: list[list[int]], seed: int) -> float:
    """How far the two sums are apart: of gradients, losses and counts, whichever is most."""
    a, b, c, d = blocks
    straight = [_played(model, rows, pair, seed) for pair in ((a, b), (c, d))]
    crossed = [_played(model, rows, pair, seed) for pair in ((a, d), (c, b))]
    gradients = _gradients_off(straight, crossed)
    losses = _numbers_off([each.loss for each in straight], [each.loss for each in crossed])
    counts = _numbers_off([each.count for each in straight], [each.count for each in crossed])
    return max(gradients, losses, counts)


def _played(model: Model, rows: RowsOf, pair: tuple[list[int], list[int]], seed: int) -> Played:
    with buffers_kept(model.module):
        return play(model, rows.read([*pair[0], *pair[1]]), seed)


def _numbers_off(one: list[float], other: list[float]) -> float:
    size = sum(map(abs, (*one, *other)))
    return abs(sum(one) - sum(other)) / size if size else 0.0


def _gradients_off(straight: list[Played], crossed: list[Played]) -> float:
    parts = list(zip(*(each.gradient for each in (*straight, *crossed)), strict=True))
    sizes = [sum(float(each.norm()) for each in part) for part in parts]
    whole = sum(size**2 for size in sizes) ** 0.5
    found = [
        float((ab + cd - ad - cb).norm()) / max(size, FLOOR * whole)
        for (ab, cd, ad, cb), size in zip(parts, sizes, strict=True)
        if size > 0.0
    ]
    return max(found, default=0.0)


# --- where ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a layer."""

    name: str
    kind: str
    """its class"""
    taken: tuple[Tensor, ...]
    given: tuple[Tensor, ...]


@contextmanager
def calls_noted(module: nn.Module) -> Iterator[list[Call]]:
    """Within it, every call of every layer is noted, inner ones first."""
    calls: list[Call] = []

    def note(name: str, layer: nn.Module) -> Any:
        def hook(_: nn.Module, args: Any, named: Any, output: Any) -> None:
            taken = tuple(each.detach() for each in tensors_in((*args, *named.values())))
            calls.append(Call(name, type(layer).__name__, taken, tuple(each.detach() for each in tensors_in(output))))

        return hook

    hooks = [layer.register_forward_hook(note(name, layer), with_kwargs=True) for name, layer in module.named_modules()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def told(name: str, kind: str) -> str:
    """A layer, for a sentence."""
    return f"{name} ({kind})" if name else f"the forward of {kind}"


def name_place(model: Model, rows: RowsOf, blocks: list[list[int]], seed: int) -> str:
    """The innermost layer that gives the rows of A other values with B than with D, although it takes the same."""
    a, b, _, d = blocks
    with_b, with_d = (_forward(model, rows, [*a, *other], seed) for other in (b, d))
    for one, other in zip(with_b[0], with_d[0], strict=False):
        if one.name != other.name:
            break
        if _alike(one.taken, other.taken, len(a), 2 * len(a)) and not _alike(
            one.given, other.given, len(a), 2 * len(a)
        ):
            return told(one.name, one.kind)
    if _loss_mixes(model, rows, blocks, with_b[1], with_d[1]):
        return f"the loss ({model.loss.name})"
    without_rows = [call for call in with_b[0] if any(_is_without_rows(each, 2 * len(a)) for each in call.given)]
    if without_rows:
        return told(without_rows[0].name, without_rows[0].kind)
    return _by_gradient(model, rows, blocks, seed)


def _is_without_rows(tensor: Tensor, rows: int) -> bool:
    """Is it a figure of all rows together, as terms of balance are?"""
    return tensor.is_floating_point() and rows not in tensor.shape


def _forward(model: Model, rows: RowsOf, ids: list[int], seed: int) -> tuple[list[Call], Any]:
    with buffers_kept(model.module), calls_noted(model.module) as calls, all_random(seed), torch.no_grad():
        output = forward(model.module, rows.read(ids)[0])
    return calls, output


def _alike(one: Sequence[Tensor], other: Sequence[Tensor], part: int, rows: int) -> bool:
    return (
        len(one) == len(other)
        and apart([_rows_of(each, part, rows) for each in one], [_rows_of(each, part, rows) for each in other])
        < NARROW_NOISE
    )


def _rows_of(tensor: Tensor, part: int, rows: int) -> Tensor:
    """The first rows of a tensor, along the first dimension that has as many; nothing of one without rows."""
    for dimension, size in enumerate(tensor.shape):
        if size == rows:
            return tensor.narrow(dimension, 0, part)
    return tensor.new_zeros(0)


def _loss_mixes(model: Model, rows: RowsOf, blocks: list[list[int]], with_b: Any, with_d: Any) -> bool:
    """Is the loss's gradient by the outputs of A another with B than with D?"""
    a, b, _, d = blocks
    found = []
    for output, other in ((with_b, b), (with_d, d)):
        leaves: list[Tensor] = []

        def leaf(tensor: Tensor, leaves: list[Tensor] = leaves) -> Tensor:
            if not tensor.is_floating_point():
                return tensor
            leaves.append(tensor.detach().requires_grad_())
            return leaves[-1]

        with all_random(0), torch.enable_grad():
            total = model.loss.summed(changed(output, leaf), rows.read([*a, *other])[1]).total
            found.append(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
    return not _alike(found[0], found[1], len(a), 2 * len(a))


def _by_gradient(model: Model, rows: RowsOf, blocks: list[list[int]], seed: int) -> str:
    """The layer whose parameter's gradient is off the most, where no output shows it."""
    a, b, c, d = blocks
    played = [_played(model, rows, pair, seed).gradient for pair in ((a, b), (c, d), (a, d), (c, b))]
    names = [name for name, each in model.module.named_parameters() if each.requires_grad]
    off = {
        name: float((ab + cd - ad - cb).norm() / (ab.norm() + cd.norm() + 1e-30))
        for name, ab, cd, ad, cb in zip(names, *played, strict=True)
    }
    owner = max(off, key=lambda name: off[name]).rpartition(".")[0]
    return told(owner, type(model.module.get_submodule(owner)).__name__)
