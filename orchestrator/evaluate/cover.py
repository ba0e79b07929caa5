"""When does each code decode? Fractional codes with different numbers of groups, all in a few calls of numpy.

A fractional code with G groups cuts a line-up of the workers into G runs (`draws.Draws.lineup`) and decodes once each
run has an answer. `Cover` holds one G per column and keeps one value per group and column in a flat array, since the
columns have different numbers of groups. Knows neither rounds nor schemes. Read next: `one_round.py`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import group_sizes
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray

Number = TypeVar("Number", bound=np.generic)


class Cover:
    """The groups of `columns` fractional codes over n workers; `chunks[p]` is G of column p."""

    def __init__(self, workers: int, chunks: IntArray) -> None:
        sizes = {int(count): group_sizes(workers, int(count)) for count in np.unique(chunks)}
        self.workers, self.chunks = workers, chunks
        self.column: IntArray = np.repeat(np.arange(chunks.size), chunks)
        """(groups of all columns,) the column of each group"""
        self._first_group: IntArray = np.cumsum(chunks) - chunks
        starts = {count: np.cumsum(of) - of for count, of in sizes.items()}
        self.first: IntArray = np.concatenate([starts[int(count)] for count in chunks])
        """(groups of all columns,) place in the line-up of its first member"""
        self._flat_starts = self.first + self.column * workers

    def by_group(self, lined_up: NDArray[Number]) -> NDArray[Number]:
        """(groups of all columns,) the least value in each group; `lined_up` is (columns, n) in line-up order."""
        return np.minimum.reduceat(lined_up.ravel(), self._flat_starts)

    def lowest(self, line: IntArray) -> IntArray:
        """(groups of all columns,) the lowest worker of each group."""
        return self.by_group(np.broadcast_to(line, (self.chunks.size, self.workers)))

    def lowest_of(self, open_: BoolArray, line: IntArray) -> BoolArray:
        """(columns, n) the lowest worker of each group that is `open_` (groups of all columns,): these repeat."""
        found = np.zeros((self.chunks.size, self.workers), dtype=np.bool_)
        found[self.column[open_], self.lowest(line)[open_]] = True
        return found

    def worst(self, of_groups: FloatArray) -> FloatArray:
        """(columns,) the greatest value over a column's groups."""
        return np.maximum.reduceat(of_groups, self._first_group)

    def covered_at(self, lined_up: FloatArray) -> FloatArray:
        """(columns,) when every group has an answer, from each worker's instant in line-up order (columns, n)."""
        return self.worst(self.by_group(lined_up))


def kth(values: FloatArray, rank: IntArray) -> FloatArray:
    """(columns,) the rank-th smallest value of each row, from 0; `values` is (columns, n)."""
    found: FloatArray = np.take_along_axis(np.sort(values, axis=1), rank[:, np.newaxis], axis=1)[:, 0]
    return found


def decode_delays(cover: Cover, line: IntArray, delays_s: FloatArray) -> FloatArray:
    """(columns,) seconds from a round's dispatch to its decode when all workers are asked at once; no load added."""
    lined_up = np.broadcast_to(delays_s[line], (cover.chunks.size, cover.workers))
    return cover.covered_at(lined_up)
