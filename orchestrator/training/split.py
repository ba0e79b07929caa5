"""Some rows of a data set, by a seed: for judging models by rows that they are not trained on.

The same seed gives the same rows on every machine and library version. Of which rows are chosen a bit is kept for each
row, as there may be very many. Knows no job. Read `data.py` next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.layout import Column
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import BLOCK_BYTES, Array, Arrays, Dataset, Labels, Source, labels_of, wider

PURPOSE = 0x76616C
"""beside the seed, so that these random numbers are not those of the order of rows"""
BLOCK_ROWS = 1 << 12
"""whose bits are looked at together"""
DRAWN_ROWS = 1 << 16
"""for which random numbers are drawn at once"""
TOP_BITS, ALL_BITS = 16, 64
"""of a random number, by which all are counted first; of the whole of it"""


class RowSet:
    """Some of the numbers of a data set's rows, ascending: a bit for each row of the data set."""

    def __init__(self, bits: NDArray[np.uint8]) -> None:
        """`bits`: packed eight to a byte."""
        self._bits = bits
        counts = np.add.reduceat(np.bitwise_count(bits), np.arange(0, len(bits), BLOCK_ROWS // 8), dtype=np.int64)
        self._first = np.concatenate([[0], np.cumsum(counts)])
        """how many are chosen before each block"""

    def __len__(self) -> int:
        return int(self._first[-1])

    def numbers(self, places: Array) -> Array:
        """(places,) the number of the row that stands at each of these places of the set."""
        blocks = np.searchsorted(self._first, places, side="right") - 1
        found = np.empty(len(places), np.int64)
        for block in np.unique(blocks).tolist():
            here, lo = blocks == block, block * BLOCK_ROWS
            inside = np.flatnonzero(np.unpackbits(self._bits[lo // 8 : (lo + BLOCK_ROWS) // 8]))
            found[here] = lo + inside[places[here] - self._first[block]]
        return found


class ChosenRows:
    """`Source`: some rows of another, in its order."""

    def __init__(self, source: Source, chosen: RowSet) -> None:
        self._source, self._chosen = source, chosen

    @property
    def rows(self) -> int:
        return len(self._chosen)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._source.columns

    def read(self, lo: int, hi: int) -> Arrays:
        return self.take(np.arange(lo, hi))

    def take(self, rows: Array) -> Arrays:
        return self._source.take(self._chosen.numbers(rows))

    def labels(self, column: str) -> Labels | None:
        found: Labels | None = None
        step = max(1, BLOCK_BYTES // max(1, sum(each.row_bytes for each in self.columns)))
        for lo in range(0, self.rows, step):
            found = wider(found, labels_of(self.read(lo, min(lo + step, self.rows))[column], lo))
        return found


def split(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """(the others, `share` of the rows), each in the order of the data set. Raises: ConfigError when one has none."""
    count = round(share * dataset.rows)
    if not 0 < count < dataset.rows:
        raise ConfigError(
            f"data.validation = {share:g} of {dataset.rows} rows leaves none to judge by, or none to train on"
        )
    chosen = _least(dataset.rows, count, seed)
    others = ~chosen
    others[-1] &= 0xFF << (-dataset.rows % 8) & 0xFF  # no row has the bits that fill the last byte
    train, judged = (Dataset.over(ChosenRows(dataset.source, RowSet(bits)), dataset.told) for bits in (others, chosen))
    return train, judged


def _least(rows: int, count: int, seed: int) -> NDArray[np.uint8]:
    """The rows with the `count` least of one random number each, as bits; of equal numbers the first are less."""
    shift = np.uint64(ALL_BITS - TOP_BITS)
    counts = sum(np.bincount((part >> shift).astype(int), minlength=1 << TOP_BITS) for part in _drawn(rows, seed))
    before = np.cumsum(counts) - counts
    top = int(np.searchsorted(before, count, side="left")) - 1  # where the last of them is
    near = np.concatenate([part[(part >> shift) == top] for part in _drawn(rows, seed)])
    most = np.sort(near)[count - 1 - before[top]]
    equal = count - int(before[top]) - int((near < most).sum())
    bits, at = np.zeros(-(-rows // 8), np.uint8), 0
    for part in _drawn(rows, seed):
        same = np.flatnonzero(part == most)
        taken = part < most
        taken[same[:equal]] = True
        equal -= len(same[:equal])
        bits[at // 8 : at // 8 + -(-len(part) // 8)] = np.packbits(taken)
        at += len(part)
    return bits


def _drawn(rows: int, seed: int) -> Iterator[NDArray[np.uint64]]:
    """A random number for each row, some rows at a time."""
    generator = np.random.PCG64(np.random.SeedSequence([seed, PURPOSE]))
    for lo in range(0, rows, DRAWN_ROWS):
        yield generator.random_raw(min(DRAWN_ROWS, rows - lo))
