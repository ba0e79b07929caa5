"""Four small classifiers of 8 x 8 grey images: what the demonstration trains. Shipped to workers by value."""

from __future__ import annotations

from torch import nn

SIDE = 8
CLASSES = 10


def mlp(hidden: int, depth: int = 1) -> nn.Module:
    """`depth` hidden layers of `hidden` units."""
    layers: list[nn.Module] = []
    width = SIDE * SIDE
    for _ in range(depth):
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def cnn(channels: int) -> nn.Module:
    """Two 3 x 3 convolutions with a norm between them, one linear layer.

    Group norm treats each row alone, so that a batch may be cut anywhere; batch norm would need passes of fixed size.
    """
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        nn.Conv2d(1, channels, 3, padding=1),
        nn.GroupNorm(2, channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * (SIDE // 2) ** 2, CLASSES),
    )
