"""Sliding windows over sets of workers: the union of the last so many, in about two unions a step.

Rows have windows of different lengths and may be forked: parameter sets that have decided alike so far share a row,
and get rows of their own when they part. Knows neither rounds nor schemes. Read next: `models.py`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.evaluate import bits
from gradmux.orchestrator.evaluate.bits import Bits, IntArray

Number = TypeVar("Number", bound=np.generic)


def with_room(state: NDArray[Number], rows: int, axis: int) -> NDArray[Number]:
    """`state`, or a copy of it with half as much room again, so that `rows` fit along `axis`."""
    if rows <= state.shape[axis]:
        return state
    larger = list(state.shape)
    larger[axis] = rows + rows // 2
    grown = np.zeros(larger, dtype=state.dtype)
    grown[(slice(None),) * axis + (slice(state.shape[axis]),)] = state
    return grown


class Past:
    """The last `length` sets of each row, oldest forgotten."""

    def __init__(self, length: int, workers: int, rows: int) -> None:
        self._sets = np.zeros((length, rows, bits.words_for(workers)), dtype=np.uint64)
        """time comes first, so that rows lie side by side in memory"""
        self._step = 0

    def push(self, sets: Bits) -> None:
        """One more set for each row."""
        self._sets[self._step % len(self._sets), : len(sets)] = sets
        self._step += 1

    def ago(self, steps: IntArray) -> Bits:
        """For each row the set pushed `steps` (rows,) steps ago, 1 for the latest; empty before the first."""
        length, room, words = self._sets.shape
        place = (self._step - steps) % length * room + np.arange(steps.size)
        return self._sets.reshape(-1, words).take(place, axis=0)

    def fork(self, parents: IntArray, rows: int) -> None:
        """New rows, behind the `rows` there are, as copies of these."""
        self._sets = with_room(self._sets, rows + parents.size, axis=1)
        self._sets[:, rows : rows + parents.size] = self._sets[:, parents]


class SlidingUnions:
    """Unions of the last `length` sets, a length per row (van Herk 1992).

    Time is cut into blocks of `length` steps. A window is the end of one block, whose unions were formed once when the
    block was full, and the beginning of the next, whose union grows by one set a step.
    """

    def __init__(self, lengths: IntArray, workers: int) -> None:
        words, longest = bits.words_for(workers), int(lengths.max())
        self._length = lengths
        self._distinct = np.unique(lengths)
        self._sets = np.zeros((longest, lengths.size, words), dtype=np.uint64)
        """sets of the current block so far; behind them the unions of the last block from there to its end"""
        self._start = np.zeros((lengths.size, words), dtype=np.uint64)
        """union of the current block"""
        self._step = 0

    def push(self, sets: Bits) -> None:
        """All windows move on by one step."""
        self._flat()[self._places()] = sets
        self._start[: len(sets)] |= sets
        self._step += 1
        for length in self._distinct[self._step % self._distinct == 0]:
            self._end_block(np.flatnonzero(self._length == length), int(length))

    def union(self) -> Bits:
        """(rows, words) union of each window."""
        return self._flat().take(self._places(), axis=0) | self._start[: self._length.size]

    def fork(self, parents: IntArray, rows: int) -> None:
        """New rows, behind the `rows` there are, as copies of these."""
        total = rows + parents.size
        self._sets = with_room(self._sets, total, axis=1)
        self._start = with_room(self._start, total, axis=0)
        for length in np.unique(self._length[parents]):
            places = np.flatnonzero(self._length[parents] == length)
            self._sets[:length, rows + places] = self._sets[:length, parents[places]]
        self._start[rows:total] = self._start.take(parents, axis=0)
        self._length = np.append(self._length, self._length[parents])

    def _flat(self) -> Bits:
        return self._sets.reshape(-1, self._sets.shape[2])

    def _places(self) -> IntArray:
        return self._step % self._length * self._sets.shape[1] + np.arange(self._length.size)

    def _end_block(self, rows: IntArray, length: int) -> None:
        block = self._sets[length - 1].take(rows, axis=0)
        for step in range(length - 2, -1, -1):
            block |= self._sets[step].take(rows, axis=0)
            self._sets[step, rows] = block
        self._start[rows] = 0
