"""Small models, each with one habit that the trial must notice, or must not mind."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import Tensor, nn


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)  # type: ignore[no-any-return]


class Centred(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))  # type: ignore[no-any-return]


class HiddenCentre(nn.Module):
    """Mixes rows in an inner layer; a zero in front of it hides that at the first weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = Centred(), nn.Linear(6, 3)
        nn.init.zeros_(self.inner.head.weight)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) + self.gate * self.inner(x)  # type: ignore[no-any-return]


class Capacity(Plain):
    """Takes ten rows and drops the others: it shows at many rows alone."""

    def forward(self, x: Tensor) -> Tensor:
        order = x[:, 0].argsort(descending=True)
        kept = torch.zeros(len(x), 1, dtype=x.dtype)
        kept[order[:10]] = 1.0
        return self.head(x * kept)  # type: ignore[no-any-return]


class Counting(Plain):
    """Changes its mind after a thousand passes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(x if self.calls < 1000 else 2 * x)  # type: ignore[no-any-return]


class Noting(Plain):
    """Counts and keeps what nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last = 0, None  # type: tuple[int, Any]

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x
        return self.head(x)  # type: ignore[no-any-return]


class FirstComer(Plain):
    """Centres by the first rows that it ever saw."""

    def __init__(self) -> None:
        super().__init__()
        self.centre: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.centre is None:
            self.centre = x.mean(0)
        return self.head(x - self.centre)  # type: ignore[no-any-return]


class Table(Plain):
    """A table that grows, as those of rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or len(self.table) < len(x):
            self.table = torch.ones(len(x), 1)
        return self.head(x * self.table[: len(x)])  # type: ignore[no-any-return]


class Entropy(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * (1.0 + os.urandom(1)[0] / 255))  # type: ignore[no-any-return]


class OwnGenerator(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * float(self.generator.random()))  # type: ignore[no-any-return]


class NumpyDrop(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x if np.random.rand() > 0.5 else 2 * x)  # type: ignore[no-any-return]


class Moving(Plain):
    """A moving average and a counter, both buffers."""

    average: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(6))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x - self.average)
        self.average.lerp_(x.detach().mean(0), 0.1)
        self.count += 1
        return out


class Shrinking(Plain):
    """Its forward scales its own weights."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.head.weight.mul_(0.99)
        return self.head(x)  # type: ignore[no-any-return]


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def contrastive(output: Tensor, target: Tensor) -> Tensor:
    """One value a row, but rows mix."""
    near = (output @ output.T).fill_diagonal_(-9.0)
    return nn.functional.cross_entropy(near, (target[:, None] == target[None]).float(), reduction="none")
