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
        """A vector that is not used; what is in it does not matter."""
        vector = self._free.pop() if self._free else np.empty(self._elements, self._dtype)
        return vector[:size]

    def give(self, vector: Vector) -> None:
        """It is not used any more."""
        whole = vector.base
        assert isinstance(whole, np.ndarray)
        self._free.append(whole)


def tree_sum(terms: Iterable[tuple[Vector, float] | None], scratch: Scratch) -> Vector:
    """The sum of weight * vector over one term or more; a vector of the scratch's.

    None is a term that is absent: its neighbour in the tree stays as it is. Not all may be absent.
    Terms are taken one by one, and log2(n) partial sums are held. The stack holds complete subtrees, larger ones first,
    like the digits of a counter.
    """
    stack: list[tuple[int, Vector | None]] = []
    for level, node in _leaf_pairs(iter(terms), scratch):
        while stack and stack[-1][0] == level:
            node, level = _merge(stack.pop()[1], node, scratch), level + 1
        stack.append((level, node))
    while len(stack) > 1:
        _, right = stack.pop()
        level, left = stack.pop()
        stack.append((level, _merge(left, right, scratch)))
    ((_, root),) = stack
    assert root is not None, "every term is absent"
    return root


def _leaf_pairs(terms: Iterator[tuple[Vector, float] | None], scratch: Scratch) -> Iterator[tuple[int, Vector | None]]:
    """The sums of neighbouring leaves, as (level, node); the last leaf alone when their number is odd."""
    for left in terms:
        try:
            right = next(terms)
        except StopIteration:
            yield 0, _leaf(left, scratch)
            return
        if left is not None and right is not None and left[1] == right[1] == 1.0:
            yield 1, np.add(left[0], right[0], out=scratch.take(left[0].size))
        else:
            yield 1, _merge(_leaf(left, scratch), _leaf(right, scratch), scratch)


def _leaf(term: tuple[Vector, float] | None, scratch: Scratch) -> Vector | None:
    return None if term is None else np.multiply(term[0], term[1], out=scratch.take(term[0].size))


def _merge(left: Vector | None, right: Vector | None, scratch: Scratch) -> Vector | None:
    if left is None or right is None:
        return right if left is None else left
    np.add(left, right, out=left)
    scratch.give(right)
    return left
