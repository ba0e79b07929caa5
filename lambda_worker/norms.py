"""Batch normalisation under gradient coding, by one of two rules; either way the batch's sums update what is running.

    "batch"     every pass is normalised by its own statistics, as torch does in training mode. Passes are the same
                whichever workers compute them, so the gradient is still a sum over them.
    "running"   every layer normalises as in evaluation, by running statistics: a sum over rows, however they are cut.

For each layer the sums [count, sum x (C), sum x^2 (C)] over the rows travel, in float64, with the gradient. Decoded,
they are those of the whole batch, and `update_running_statistics` does what torch does after a forward pass over the
whole batch, once a step. A layer that the user keeps in evaluation mode stays so, and is updated by nothing.

Used by both sides. Read `gradient.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = [
    "NormError",
    "Rule",
    "normalising_by_pass",
    "recording",
    "statistics_size",
    "training_norms",
    "update_running_statistics",
]

Rule: TypeAlias = Literal["batch", "running"]

MIN_VALUES = 2
"""A variance takes two values."""
ROUNDING = 1e-6
"""share by which the decoded count of an exact decode may differ from the batch's"""


class NormError(ValueError):
    """A normalisation layer that makes the gradient no sum over samples."""


def training_norms(model: nn.Module, rule: Rule = "running") -> list[_BatchNorm]:
    """Puts the model into training mode as the user's own `train()` does it, and its norms under this rule.

    Returns the batch-norm layers whose statistics run, in `named_modules()` order, shared ones once: neither those that
    the user keeps in evaluation mode, nor those without running statistics. Raises NormError for one of these under the
    rule "running", which they cannot follow.
    """
    model.train()
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)]
    for name, layer in layers:
        if layer.running_mean is None and rule == "running":
            raise NormError(
                f"{name}: BatchNorm with track_running_stats=False normalises with the statistics of its batch, "
                "so its gradient is no sum over samples; track running statistics, or use GroupNorm or LayerNorm"
            )
    running = [layer for _, layer in layers if layer.training and layer.running_mean is not None]
    if rule == "running":
        for layer in running:
            layer.eval()
    return running


def normalising_by_pass(model: nn.Module) -> str | None:
    """The name of the first batch norm that normalises by the statistics of its pass; None when there is none.

    Those in training mode, and those without running statistics in either mode: asked after `training_norms`.
    """
    layers = ((name, layer) for name, layer in model.named_modules() if isinstance(layer, _BatchNorm))
    return next((name for name, layer in layers if layer.training or layer.running_mean is None), None)


def statistics_size(layers: Sequence[_BatchNorm]) -> int:
    """Elements of the statistics: 1 + 2 C for each layer."""
    return sum(1 + 2 * layer.num_features for layer in layers)


@contextmanager
def recording(layers: Sequence[_BatchNorm]) -> Iterator[Tensor]:
    """Within it, a float64 vector (statistics_size,) adds up what the layers see; one that runs twice adds twice."""
    total = torch.zeros(statistics_size(layers), dtype=torch.float64)
    hooks = [
        layer.register_forward_pre_hook(_recorder(part))
        for layer, part in zip(layers, _split(total, layers), strict=True)
    ]
    try:
        yield total
    finally:
        for hook in hooks:
            hook.remove()


def _recorder(part: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def record(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        part.add_(_sums(inputs[0]))

    return record


def _split(statistics: Tensor, layers: Sequence[_BatchNorm]) -> Sequence[Tensor]:
    """Each layer's part, as views."""
    return torch.split(statistics, [1 + 2 * layer.num_features for layer in layers]) if layers else ()


def _sums(activation: Tensor) -> Tensor:
    """[count, sum x (C), sum x^2 (C)] of an activation (N, C, ...)."""
    by_channel = activation.detach().to(torch.float64).transpose(0, 1).flatten(1)  # (C, count)
    count = torch.tensor([by_channel.shape[1]], dtype=torch.float64)
    return torch.cat((count, by_channel.sum(1), by_channel.square().sum(1)))


@torch.no_grad()
def update_running_statistics(layers: Sequence[_BatchNorm], statistics: Tensor) -> None:
    """Updates running mean, variance and batch count as torch does for one batch with these decoded sums.

    `layers` are those of `training_norms`; `statistics` is (statistics_size,), float64: the sums of the whole batch.
    """
    size = statistics_size(layers)
    if statistics.numel() != size:
        raise ValueError(f"{statistics.numel()} statistics came, the model's batch-norm layers have {size}")
    for layer, part in zip(layers, _split(statistics, layers), strict=True):
        _update(layer, _whole(float(part[0])), *part[1:].chunk(2))


def _whole(count: float) -> float:
    """Without a decode's rounding; an estimate's count, n/k times what came, need not be whole."""
    return float(round(count)) if abs(count - round(count)) <= ROUNDING * abs(count) else count


def _update(layer: _BatchNorm, count: float, total: Tensor, squares: Tensor) -> None:
    if count < MIN_VALUES or layer.running_mean is None or layer.running_var is None:
        return  # the layer did not run
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    factor = 1.0 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    mean = total / count
    variance = (squares / count - mean.square()).clamp_(min=0.0) * (count / (count - 1))
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), factor)
    layer.running_var.lerp_(variance.to(layer.running_var.dtype), factor)
