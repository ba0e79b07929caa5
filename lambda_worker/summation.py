"""Weighted sums of vectors, in one order for all: a binary tree whose shape depends on the number of terms alone.

Addition of floats is not associative. With the order fixed, whoever adds gets the same bits: the client that decodes,
or workers that sum a slice each. A tree also rounds less than a running sum: log2(n) times instead of n. Numpy only;
shared with the orchestrator. Read next: `reduce.py`, and `orchestrator/training/gradients.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scratch", "Vector", "tree_sum"]

Vector: TypeAlias = NDArray[Any]
"""float32 or float64."""


class Scratch:
    """Vectors of one length to write partial sums to, used again and again by one thread."""

    def __init__(self, dtype: np.dtype[Any], elements: int) -> None:
        """`elements` is the longest length that will be asked for."""
        self._dtype, self._elements = dtype, elements
        self._free: list[Vector] = []

    def take(self, size: int) -> Vector:
        """A vector that nobody uses; what is in it does not matter."""
        vector = self._free.pop() if self._free else np.empty(self._elements, self._dtype)
        return vector[:size]

    def give(self, vector: Vector) -> None:
        """Nobody uses it any more."""
        whole = vector.base
        assert isinstance(whole, np.ndarray)
        self._free.append(whole)


def tree_sum(terms: Iterable[tuple[Vector, float]], scratch: Scratch) -> Vector:
    """The sum of weight * vector over one term or more; a vector of the scratch's.

    Terms are taken one by one, and log2(n) partial sums are held. The stack holds complete subtrees, larger ones first,
    like the digits of a counter.
    """
    stack: list[tuple[int, Vector]] = []
    for level, node in _leaf_pairs(iter(terms), scratch):
        while stack and stack[-1][0] == level:
            node, level = _merge(stack.pop()[1], node, scratch), level + 1
        stack.append((level, node))
    while len(stack) > 1:
        _, right = stack.pop()
        level, left = stack.pop()
        stack.append((level, _merge(left, right, scratch)))
    ((_, root),) = stack
    return root


def _leaf_pairs(terms: Iterator[tuple[Vector, float]], scratch: Scratch) -> Iterator[tuple[int, Vector]]:
    """The sums of neighbouring leaves, as (level, node); the last leaf alone when their number is odd."""
    for vector, weight in terms:
        node = scratch.take(vector.size)
        neighbour = next(terms, None)
        if neighbour is None:
            np.multiply(vector, weight, out=node)
            yield 0, node
        elif weight == neighbour[1] == 1.0:
            yield 1, np.add(vector, neighbour[0], out=node)
        else:
            np.multiply(vector, weight, out=node)
            other = scratch.take(node.size)
            np.multiply(neighbour[0], neighbour[1], out=other)
            yield 1, _merge(node, other, scratch)


def _merge(left: Vector, right: Vector, scratch: Scratch) -> Vector:
    np.add(left, right, out=left)
    scratch.give(right)
    return left
