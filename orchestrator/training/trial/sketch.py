"""A gradient that is too large to be kept -> a few numbers that are linear in it, and have about its norm.

Its elements are dealt to buckets, each with a random sign, and added. The sketch of a sum is the sum of the sketches:
a + b - c - d is zero to rounding where that of the gradients is, and has about its norm where not; the square of the
norm is right on average. By hand, with two buckets and the signs ++--: (1, 2, 3, 4) becomes (1 - 3, 2 - 4). Source:
Charikar, Chen and Farach-Colton 2002.

Knows no model. Used by `playing.py`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BUCKETS = 32_749
"""a prime, so that no layer's rows fall into the same few"""
TILE_ROWS = 16
"""of signs that are drawn for each bucket; each following tile has them all, or the opposite of all"""


def sketch(tensor: Tensor) -> Tensor:
    """(BUCKETS,) of the tensor's own type; the elements themselves, (elements,), where they are no more.

    In numpy, whose one thread is faster here than several which wait for each other.
    """
    if tensor.numel() <= BUCKETS:
        return tensor.detach().reshape(-1).clone()
    elements = tensor.detach().reshape(-1).numpy()
    total, signs, tile = np.zeros(BUCKETS), _tile(), BUCKETS * TILE_ROWS
    for number, turn in enumerate(_turns(-(-elements.size // tile))):
        part = elements[number * tile : (number + 1) * tile]
        rows, rest = divmod(part.size, BUCKETS)
        total += turn * (part[: rows * BUCKETS].reshape(rows, BUCKETS) * signs[:rows]).sum(0, dtype=np.float64)
        if rest:
            total[:rest] += turn * (part[rows * BUCKETS :] * signs[rows, :rest])
    return torch.from_numpy(total).to(tensor.dtype)


@cache
def _tile() -> NDArray[np.int8]:
    """(TILE_ROWS, BUCKETS) of 1 and -1."""
    return _signs(TILE_ROWS * BUCKETS, seed=0).reshape(TILE_ROWS, BUCKETS)


@cache
def _turns(count: int) -> list[int]:
    found: list[int] = _signs(count, seed=1).tolist()
    return found


def _signs(count: int, seed: int) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(0, 2, count, dtype=np.int8) * np.int8(2) - np.int8(1)
