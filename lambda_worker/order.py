"""Which rows each step uses, and how its batch is cut into passes: the same for client and worker, from a few numbers.

The rows are shuffled anew for every epoch, from a seed, and cut into batches of `batch_size`; the rest of an epoch that
fills no batch is dropped (the next one shuffles it in again). Of very many rows no order is kept (`permutation.py`), so
that a small worker can train on them. A batch is cut into P passes whose sizes differ by at
most one, and rows ascend within a pass, so that neighbours in the data set are read together. The same seed gives the
same batches on every machine and library version, so a resumed run goes on with the same rows.

Knows neither data nor schemes. Read `gradient.py` next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.permutation import permuted

__all__ = ["BatchOrder", "RowIds", "pass_bound"]

RowIds: TypeAlias = NDArray[np.uint32]
Sampling: TypeAlias = Callable[[], NDArray[np.float64] | None]

KEPT_EPOCHS = 3
"""Models side by side are at nearby steps."""
KEPT_BATCHES = 8
KEPT_ROWS = 2**22
"""Of more rows no order is kept: it would take 8 bytes for each while it is made."""


class BatchOrder:
    """The batches of one data set under one seed; models with the same seed share it, and so its permutations."""

    def __init__(
        self,
        rows: int,
        batch_size: int,
        seed: int = 0,
        *,
        shuffle: bool = True,
        sampling: Sampling | None = None,
    ) -> None:
        """`shuffle` False: rows in their own order, so that with batch_size == rows each chunk has the same rows at
        every step (what lazy schemes call a shard). `sampling` gives, when batches are asked for, (rows,) numbers in
        proportion to which rows are drawn, with replacement; or None."""
        assert 0 < batch_size <= rows
        self.rows, self.batch_size, self.seed, self.shuffle = rows, batch_size, seed, shuffle
        self._sampling = sampling
        self._permutation = lru_cache(KEPT_EPOCHS)(self._shuffled)
        self._batch = lru_cache(KEPT_BATCHES)(self._found)

    @property
    def batches_per_epoch(self) -> int:
        return self.rows // self.batch_size

    def epoch(self, step: int) -> int:
        """The pass over the data that a step belongs to."""
        return step // self.batches_per_epoch

    def batch(self, step: int) -> RowIds:
        """(batch_size,) row numbers of this step, in shuffled order."""
        return self._batch(step)

    def _found(self, step: int) -> RowIds:
        epoch, place = divmod(step, self.batches_per_epoch)
        start = place * self.batch_size
        end = start + self.batch_size
        if self._bounds is not None:
            return self._drawn(epoch, start, self._bounds)
        if not self.shuffle:
            return np.arange(start, end, dtype=np.uint32)
        if self.rows > KEPT_ROWS:
            return permuted(np.arange(start, end), self.rows, (self.seed, epoch)).astype(np.uint32)
        return self._permutation(epoch)[start:end]

    @cached_property
    def _bounds(self) -> NDArray[np.float64] | None:
        """(rows,) where each row ends when 1 is dealt to them in proportion."""
        sampling = None if self._sampling is None else self._sampling()
        return None if sampling is None else np.cumsum(sampling / sampling.sum())

    def rows_of(self, step: int, passes: int, first: int, end: int) -> RowIds:
        """Row numbers of passes [first, end) of the `passes` of this step, ascending."""
        lo, hi = (pass_bound(index, passes, self.batch_size) for index in (first, end))
        return np.sort(self.batch(step)[lo:hi])

    def _shuffled(self, epoch: int) -> RowIds:
        """(rows,) one epoch. It sorts random bits: numpy promises their stream for ever, but not permutation()."""
        bits = np.random.PCG64(np.random.SeedSequence([self.seed, epoch])).random_raw(self.rows)
        return np.argsort(bits, kind="stable").astype(np.uint32)

    def _drawn(self, epoch: int, start: int, bounds: NDArray[np.float64]) -> RowIds:
        """(batch_size,) drawn one by one, with replacement, in proportion to their numbers, after `start` others."""
        generator = np.random.PCG64(np.random.SeedSequence([self.seed, epoch]))
        generator.advance(start)
        bits = generator.random_raw(self.batch_size)
        places = np.searchsorted(bounds, (bits >> np.uint64(11)) * 2.0**-53, side="right")
        last = int(np.flatnonzero(np.diff(bounds, prepend=0.0))[-1])  # sums of floats may end below 1
        drawn: RowIds = np.minimum(places, last).astype(np.uint32)
        return drawn


def pass_bound(index: int, passes: int, batch_size: int) -> int:
    """Where pass `index` of `passes` begins within a batch; index == passes gives its end."""
    return index * batch_size // passes
