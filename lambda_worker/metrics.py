"""Named figures of a batch beside its loss: each a sum and a count over rows, which are coded and decoded with it.

A metric is anything that a loss may be (`losses.py`), without a gradient; or a name from here. What a function returns
for each row may also be truths or whole numbers. Rows' weights have no part in it. Knows no gradient and no request.
Read `gradient.py` next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gradmux.lambda_worker.losses import Loss, loss_from, takes_reduction
from gradmux.lambda_worker.outputs import scores
from gradmux.lambda_worker.structure import Values, bare, row_count

__all__ = ["BUILT_IN", "Metrics", "judge", "metric_from", "metric_sums", "metrics_in"]

Metrics = Mapping[str, Loss]
"""by name, in order"""
TOP = 5


def judge(output: Any, target: Values, top: int = 1) -> tuple[Tensor, Tensor]:
    """(correct, judged) predictions of each sample, (samples,) float64; zeros when this is no classification.

    Classification is recognised by shapes: scores (samples, classes, ...) against integer targets (samples, ...), which
    are one tensor. A prediction is correct if the target is among its `top` classes.
    """
    samples = row_count(target)
    target = bare(target)
    nothing, output = torch.zeros(samples, dtype=torch.float64), scores(output)
    if output is None or not isinstance(target, Tensor):
        return nothing, nothing
    if target.is_floating_point() or target.dtype is torch.bool:
        return nothing, nothing
    if output.ndim != target.ndim + 1 or (output.shape[0], *output.shape[2:]) != tuple(target.shape):
        return nothing, nothing
    judged = (target >= 0).reshape(samples, -1)  # negative targets are torch's ignore_index
    output = output.detach()
    best = output.argmax(1, keepdim=True) if top == 1 else output.topk(min(top, output.shape[1]), 1).indices
    hits = (best == target.unsqueeze(1)).any(1).reshape(samples, -1)
    return hits.sum(1, dtype=torch.float64), judged.sum(1, dtype=torch.float64)


def _share(output: Any, target: Any, top: int) -> tuple[Tensor, Tensor]:
    correct, judged = judge(output, target, top)
    return correct.sum(), judged.sum()


BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "accuracy": functools.partial(_share, top=1),
    f"top_{TOP}_accuracy": functools.partial(_share, top=TOP),
}


def metric_from(source: Any, name: str) -> Loss:
    """The metric of a name from here or of torch.nn.functional, of a loss module or a function. Raises LossError."""
    if isinstance(source, str):
        source = BUILT_IN.get(source, source)
    plain = callable(source) and not isinstance(source, type | torch.nn.Module) and not takes_reduction(source)
    return loss_from(_numbers_of(source) if plain else source, name)


def _numbers_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with truths and whole numbers as floats."""

    def figure(output: Any, *target: Any, **named: Any) -> Any:
        value = function(output, *target, **named)
        if isinstance(value, tuple | list):
            return tuple(_as_float(each) for each in value)
        return _as_float(value)

    return figure


def _as_float(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and not value.is_floating_point() else value


@torch.no_grad()
def metric_sums(metrics: Metrics, output: Any, target: Values) -> Tensor:
    """(2 m,) float64: sum and count of each metric over these rows. Raises LossError."""
    if not metrics:
        return torch.empty(0, dtype=torch.float64)
    found = [metric.summed(output, bare(target)) for metric in metrics.values()]
    return torch.tensor([number for each in found for number in (float(each.total), each.count)], dtype=torch.float64)


def metrics_in(metrics: Metrics, sums: Tensor) -> dict[str, tuple[float, float]]:
    """(sum, count) of each by name, out of what `metric_sums` made, decoded."""
    pairs = sums.reshape(-1, 2).tolist()
    return {name: (total, count) for name, (total, count) in zip(metrics, pairs, strict=True)}
