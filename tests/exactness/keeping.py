"""A small model whose results have every section, and the schemes under which it is trained.

It has batch norm, buffers of several types that its forward changes, a loss whose count is no number of rows, and named
metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradmux.orchestrator.auto import Choice
from gradmux.orchestrator.record import Decoded
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import Prepared
from scripts.exactness.here import Case, prepared_of

MOST_MODELS, STEPS, PASS_ROWS, LARGE = 4, 3, 8, 2**51 + 1
RNG = np.random.default_rng(5)
X = RNG.normal(size=(96, 6)).astype(np.float32)
Y = RNG.integers(4, size=96)
Y[::5] = -100
WEIGHT = torch.tensor([0.1, 1.0, 2.0, 5.0])

EXACT: tuple[tuple[str, Mapping[str, Any], int], ...] = (
    ("uncoded", {}, 4),
    ("gc", {"s": 1}, 4),
    ("gc", {"s": 1, "code": "cyclic"}, 4),
    ("gc", {"s": 1, "code": "dft"}, 4),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 2}, 4),
    ("sr-sgc", {"B": 2, "W": 3, "lambda": 2, "code": "cyclic"}, 4),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 2}, 4),
    ("m-sgc", {"B": 2, "W": 3, "lambda": 2, "code": "cyclic"}, 4),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 4}, 4),
    ("gc-partial", {"m": 1, "s": 1}, 4),
    ("gc-partial", {"m": 2, "s": 1, "code": "cyclic"}, 4),
    ("backup", {}, 4),
    ("grouping", {"G": 2}, 4),
    ("pipeline", {"n": 3, "s": 1}, 4),
    ("pipeline-auto", {}, 4),
    ("fastest-k", {"k": 4}, 4),
    ("agc", {"s": 1, "r": 4}, 4),
)
TYPES: Mapping[str, Mapping[str, Any]] = {
    "float32": {},
    "float64": {"dtype": "float64"},
    "float16": {"results": "float16"},
}
LAST_BITS = 4e-16
"""of what passes keep: a coefficient is divided out again"""
AGREE = {"float32": 1e-5, "float64": 1e-11, "float16": 2e-2}
"""weights and losses, relative; float16 has 11 bits, for each of three steps"""


class Keeping(nn.Module):
    """Normalises, centres by a moving average of its inputs, and counts its passes in a number that float32 has not."""

    mean: Tensor
    count: Tensor
    turned: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("count", torch.tensor(LARGE))
        self.register_buffer("turned", torch.ones(2, dtype=torch.complex64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.norm(self.first(x - self.mean))))
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.3)
            self.count += 1
            self.turned *= 1j
        return out


def case(kind: str = "float32") -> Case:
    training = {"pass_rows": PASS_ROWS, **TYPES[kind]}
    loss = nn.CrossEntropyLoss(weight=WEIGHT)
    optimizer = {"name": "SGD", "lr": 0.1, "momentum": 0.9}
    metrics = (weighted, hits, "accuracy", "top_5_accuracy")
    return Case("keeping", "state", Keeping, X, Y, loss, optimizer, training, metrics=metrics)


def weighted(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss once more, as a metric that counts no rows."""
    weight = WEIGHT.to(output.dtype)
    total = nn.functional.cross_entropy(output, target, weight=weight, reduction="sum")
    return total, weight[target[target >= 0]].sum()


def hits(output: Tensor, target: Tensor) -> Tensor:
    """One truth a row."""
    return output.argmax(1) == target


def assert_metrics(told: Decoded, rows: NDArray[Any]) -> None:
    """Of a step on these rows, whose loss and correct predictions are known."""
    (found,) = told.metrics
    judged = int((Y[rows] >= 0).sum())
    expected = {"weighted": told.loss, "hits": told.correct / len(rows), "accuracy": told.correct / judged}
    assert found == pytest.approx({**expected, "top_5_accuracy": 1.0}, rel=1e-6)


@cache
def prepared(kind: str) -> Prepared:
    return prepared_of(case(kind), STEPS, MOST_MODELS)


@cache
def plain(kind: str) -> Reference:
    return Reference.of(prepared(kind))


def under(kind: str, scheme: str, params: Mapping[str, Any], workers: int) -> Prepared:
    whole, models = prepared(kind), MOST_MODELS if params.get("B") == 2 else 2
    fewer = replace(whole, models=whole.models[:models], plan=replace(whole.plan, models=models))
    return fewer.under(Choice(scheme, params, workers, "asked for"), fewer.plan)


def assert_alike(ours: nn.Module, plain: nn.Module, limit: float) -> None:
    """Weights and statistics to `limit`, what forwards keep to its last bits, all in the types that they had."""
    theirs = dict(plain.named_buffers())
    for name, buffer in ours.named_buffers():
        assert buffer.dtype == theirs[name].dtype
        if name == "mean":
            torch.testing.assert_close(buffer, theirs[name], rtol=LAST_BITS, atol=0.0)
        elif buffer.is_floating_point():
            torch.testing.assert_close(buffer, theirs[name], rtol=limit, atol=limit)
        else:
            assert torch.equal(buffer, theirs[name]), name
    for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=limit, atol=limit)
