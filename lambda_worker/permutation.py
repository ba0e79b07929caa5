"""A seeded permutation of a great many rows, of which any places can be asked for: nothing is kept of it.

An alternating Feistel network over the least power of two that holds all rows: each round adds to one half of the bits
a mix of the other half and a key, which can be undone whatever the mix is, so the whole is one to one. A result that is
no row is sent through again until it is one (cycle walking), less than once on average. Source: Luby and Rackoff 1988;
Black and Rogaway 2002. Whole numbers alone, so that every machine comes to the same. Read `order.py` next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["permuted"]

ROUNDS = 10
PURPOSE = 0x6F72646572
"""beside the seeds, so that these keys are not what else is drawn from them"""
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Numbers = NDArray[np.uint64]


def permuted(places: NDArray[np.int64], count: int, seeds: tuple[int, ...]) -> NDArray[np.int64]:
    """What stands at these places, each from 0 to `count` - 1, of the numbers below `count` in a seeded order."""
    keys = np.random.SeedSequence([*seeds, PURPOSE]).generate_state(ROUNDS, np.uint64).astype(np.uint64)
    bits = max(2, (count - 1).bit_length())
    found = _through(places.astype(np.uint64), bits, keys)
    while (outside := found >= count).any():
        found[outside] = _through(found[outside], bits, keys)
    return found.astype(np.int64)


def _through(numbers: Numbers, bits: int, keys: Numbers) -> Numbers:
    """The network once, of numbers of so many bits."""
    low = bits // 2
    widths = (bits - low, low)  # of the left half and of the right
    left, right = numbers >> np.uint64(low), numbers & _mask(low)
    for turn, key in enumerate(keys):
        if turn % 2:
            right = (right + _mixed(left ^ key)) & _mask(widths[1])
        else:
            left = (left + _mixed(right ^ key)) & _mask(widths[0])
    return (left << np.uint64(low)) | right


def _mixed(numbers: Numbers) -> Numbers:
    """splitmix64's finalizer: every bit depends on all."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * SECOND
    return numbers ^ (numbers >> np.uint64(31))


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
