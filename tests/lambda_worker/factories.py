"""Models and losses that the tests' specs name by import path, as a user's module would."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(features: int = 6, hidden: int = 5, classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def with_dropout(features: int = 6, classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 16), nn.Dropout(0.5), nn.Linear(16, classes))


def with_norm(features: int = 6, classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, classes))


class Tied(nn.Module):
    """An autoencoder whose decoder is the encoder's transpose: one weight in two places, one of them transposed."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden, bias=False)
        self.again = self.encoder
        self.alias = self.encoder.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.again(x) @ self.alias


def tied(features: int = 6, hidden: int = 3) -> nn.Module:
    return Tied(features, hidden)


class NonContiguous(nn.Module):
    """Its parameter's memory is column-major."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, features * classes + 1).reshape(classes, features).t() / 10)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def non_contiguous(features: int = 6, classes: int = 3) -> nn.Module:
    return NonContiguous(features, classes)


class Masked(nn.Module):
    """A random mask that is no parameter and no float."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("mask", torch.rand(3, 6) < 0.5)


def masked() -> nn.Module:
    return Masked()


class Drifting(nn.Module):
    """A forward pass changes a float buffer that the next one reads."""

    drift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("drift", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.drift.mul_(2.0)
        return self.linear(x) * self.drift


def drifting() -> nn.Module:
    return Drifting()


def partly_frozen() -> nn.Module:
    module = mlp()
    for parameter in module[0].parameters():
        parameter.requires_grad_(False)
    return module


def broken(**_: Any) -> nn.Module:
    raise RuntimeError("the factory is broken")


def not_a_module() -> str:
    return "hello"


def summed(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="sum")


def per_sample(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def averaged(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target)


def not_a_number(output: Tensor, target: Tensor) -> Tensor:
    return output.sum() * float("nan")
