"""Random small networks over the norm, activation, recurrent, attention and embedding layers of torch.nn.

A network is an input (rows, images or tokens), one to three layers of which each is drawn from a family, and a loss. At
least two in five interact, draw random numbers or keep state. Pure: what is drawn depends on the number alone.
Read next: `here.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scripts.exactness.cases import BITS, IMAGES, NUMBERS, TOKENS, X, Y
from scripts.exactness.here import Case

WIDTH = 12
Make = Callable[[], nn.Module]

ACTIVATIONS: tuple[Make, ...] = (
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.Mish,
    nn.Softplus,
    nn.Softsign,
    nn.LeakyReLU,
    nn.PReLU,
    nn.LogSigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.ReLU6,
    nn.Softshrink,
    nn.Hardshrink,
    nn.Tanhshrink,
    partial(nn.Threshold, 0.1, 0.0),
    partial(nn.Softmax, -1),
    partial(nn.LogSoftmax, -1),
    partial(nn.Softmin, -1),
)
NORMS: tuple[Make, ...] = (
    partial(nn.LayerNorm, WIDTH),
    partial(nn.RMSNorm, WIDTH),
    partial(nn.GroupNorm, 3, WIDTH),
)
UNSTEADY: tuple[Make, ...] = (
    partial(nn.BatchNorm1d, WIDTH),
    partial(nn.BatchNorm1d, WIDTH, momentum=None),
    partial(nn.BatchNorm1d, WIDTH, track_running_stats=False),
    partial(nn.BatchNorm1d, WIDTH, affine=False),
    partial(nn.Dropout, 0.3),
    partial(nn.AlphaDropout, 0.2),
    partial(nn.FeatureAlphaDropout, 0.2),
    nn.RReLU,
    lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
)
RECURRENT: tuple[Callable[..., nn.Module], ...] = (nn.LSTM, nn.GRU, nn.RNN)


class Habit(nn.Module):
    """Layers that interact, or keep state, of no class of torch's."""

    mean: Tensor
    count: Tensor

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.calls = kind, 0
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        if self.kind == "centres":
            return h - h.mean(0)
        if self.kind == "counts":
            self.calls += 1
            return h * min(1.0, self.calls / 50)
        out = h - self.mean
        self.mean.lerp_(h.detach().mean(0), 0.1)
        self.count += 1
        return out


class Rows(nn.Module):
    """(N, 20) -> (N, WIDTH)"""

    def __init__(self, layers: list[Make]) -> None:
        super().__init__()
        self.inner = nn.Linear(20, WIDTH)
        self.layers = nn.ModuleList(layer() for layer in layers)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        for layer in self.layers:
            h = layer(h)
        return h  # type: ignore[no-any-return]


class Sequences(nn.Module):
    """(N, 16) tokens -> (N, WIDTH), by a recurrent or an attending layer."""

    def __init__(self, embedding: Make, layer: Make, layers: list[Make]) -> None:
        super().__init__()
        self.embedding, self.layer = embedding(), layer()
        self.layers = nn.ModuleList(each() for each in layers)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embedding(tokens)
        if isinstance(self.layer, nn.MultiheadAttention):
            h = self.layer(h, h, h, need_weights=False)[0]
        else:
            h = self.layer(h)
        h = (h[0] if isinstance(h, tuple) else h).mean(1)
        for each in self.layers:
            h = each(h)
        return h  # type: ignore[no-any-return]


class Images(nn.Module):
    """(N, 3, 8, 8) -> (N, WIDTH)"""

    def __init__(self, norm: Make, layers: list[Make]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, WIDTH, 3), norm()
        self.layers = nn.ModuleList(each() for each in layers)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x)).mean((2, 3))
        for each in self.layers:
            h = each(h)
        return h  # type: ignore[no-any-return]


class Headed(nn.Module):
    def __init__(self, body: Make, outputs: int) -> None:
        super().__init__()
        self.body, self.head = body(), nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def contrast(output: Tensor, target: Tensor) -> Tensor:
    """One value a row, but rows mix."""
    near = F.normalize(output, dim=1)
    return F.cross_entropy(4 * near @ near.T, (target[:, None] == target[None]).float(), reduction="none")


def own_mean(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target)


def _layers(draw: random.Random) -> list[Make]:
    families: list[tuple[Make, ...]] = [ACTIVATIONS, NORMS, UNSTEADY, (linear,)]
    made = [draw.choice(draw.choices(families, (4, 2, 3, 1))[0]) for _ in range(draw.randint(1, 3))]
    if draw.random() < 0.15:
        made.append(partial(Habit, draw.choice(["centres", "averages", "counts"])))
    return made


def linear() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def _embedding(draw: random.Random) -> Make:
    options: dict[str, Any] = draw.choice(
        [{}, {"padding_idx": 0}, {"sparse": True}, {"scale_grad_by_freq": True}, {"max_norm": 1.0}]
    )
    return partial(nn.Embedding, 50, WIDTH, **options)


def _sequence_layer(draw: random.Random) -> Make:
    if draw.random() < 0.5:
        layers = draw.randint(1, 2)
        dropout = draw.choice([0.0, 0.2]) if layers > 1 else 0.0
        return partial(draw.choice(RECURRENT), WIDTH, WIDTH, layers, batch_first=True, dropout=dropout)
    dropout = draw.choice([0.0, 0.2])
    if draw.random() < 0.5:
        return partial(nn.MultiheadAttention, WIDTH, 2, dropout=dropout, batch_first=True)
    return partial(nn.TransformerEncoderLayer, WIDTH, 2, 16, dropout, draw.choice(["relu", "gelu"]), batch_first=True)


def _image_norm(draw: random.Random) -> Make:
    kinds: tuple[Make, ...] = (
        nn.Identity,
        partial(nn.BatchNorm2d, WIDTH),
        partial(nn.InstanceNorm2d, WIDTH),
        partial(nn.InstanceNorm2d, WIDTH, track_running_stats=True, affine=True),
        partial(nn.GroupNorm, 2, WIDTH),
        partial(nn.LocalResponseNorm, 2),
        partial(nn.Dropout2d, 0.2),
    )
    return draw.choice(kinds)


def _loss(draw: random.Random) -> tuple[Any, Any, int]:
    """(loss, targets, outputs)"""
    weights = torch.tensor([0.2, 1.0, 1.0, 2.0, 3.0])
    kinds = (
        ("cross_entropy", Y, 5),
        (nn.CrossEntropyLoss(weight=weights), Y, 5),
        (nn.CrossEntropyLoss(ignore_index=2), Y, 5),
        ("mse_loss", NUMBERS, 3),
        ("huber_loss", NUMBERS, 3),
        ("binary_cross_entropy_with_logits", BITS, 3),
        (contrast, Y, 5),
        (own_mean, Y, 5),
    )
    return draw.choices(kinds, (4, 2, 2, 2, 2, 2, 1, 1))[0]


def drawn_case(number: int) -> Case:
    """The network of this number."""
    draw = random.Random(number)
    layers = _layers(draw)
    kind = draw.choice(["rows", "rows", "tokens", "images"])
    if kind == "rows":
        x, body = X, partial(Rows, layers)
    elif kind == "tokens":
        x, body = TOKENS, partial(Sequences, _embedding(draw), _sequence_layer(draw), layers)
    else:
        x, body = IMAGES, partial(Images, _image_norm(draw), layers)
    loss, y, outputs = _loss(draw)
    optimizer = draw.choice([{"name": "SGD", "lr": 0.05}, {"name": "SGD", "lr": 0.02, "momentum": 0.9}])
    return Case(f"network {number}", kind, partial(Headed, body, outputs), x, y, loss, optimizer)
