"""A small residual net with BatchNorm, from scratch on digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(16, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.reshape(-1, 1, 8, 8))
        for block in self.blocks:
            h = torch.relu(h + block(h))
        return self.head(h.mean((2, 3)))  # type: ignore[no-any-return]
