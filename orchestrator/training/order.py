"""Which rows each step uses, and how a batch is cut into chunks.

The rows are shuffled anew for every pass over the data, from a seed, and cut into batches of `batch_size`; the rest of
a pass that fills no batch is dropped (the next pass shuffles it in again). The same seed gives the same batches on
every machine and library version, so a resumed run goes on with the same rows. Knows neither data nor schemes; pure.
Read `requests.py` next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.errors import ConfigError

RowIds = NDArray[np.uint32]

KEPT_PASSES = 3
KEPT_STEPS = 16
"""Models side by side are at nearby steps."""


class BatchOrder:
    """The batches of one data set under one seed; models with the same seed share it, and so its cache."""

    def __init__(self, rows: int, batch_size: int, seed: int = 0, *, shuffle: bool = True) -> None:
        """`shuffle` False: rows in their own order, so that with batch_size == rows each chunk has the same rows at
        every step (what lazy schemes call a shard).

        Raises: ConfigError when the data set has fewer rows than a batch.
        """
        if batch_size > rows:
            raise ConfigError(f"batch_size = {batch_size} is more than the {rows} rows of the training data")
        self.rows, self.batch_size, self.seed, self.shuffle = rows, batch_size, seed, shuffle
        self._permutation = lru_cache(KEPT_PASSES)(self._shuffled)
        self._cut = lru_cache(KEPT_STEPS)(self._cut_batch)

    @property
    def batches_per_pass(self) -> int:
        return self.rows // self.batch_size

    def batch(self, step: int) -> RowIds:
        """(batch_size,) row numbers of this step."""
        which_pass, place = divmod(step, self.batches_per_pass)
        start = place * self.batch_size
        return self._permutation(which_pass)[start : start + self.batch_size]

    def chunks(self, step: int, bounds: tuple[int, ...]) -> Sequence[RowIds]:
        """The batch cut at `bounds` (see `chunk_bounds`): every row is in exactly one chunk.

        Within a chunk rows come in ascending order, so that neighbours in the data set are read together.
        """
        return self._cut(step, bounds)

    def _shuffled(self, which_pass: int) -> RowIds:
        """(rows,) one pass. It sorts random bits: numpy promises their stream for ever, but not permutation()."""
        if not self.shuffle:
            return np.arange(self.rows, dtype=np.uint32)
        bits = np.random.PCG64(np.random.SeedSequence([self.seed, which_pass])).random_raw(self.rows)
        return np.argsort(bits, kind="stable").astype(np.uint32)

    def _cut_batch(self, step: int, bounds: tuple[int, ...]) -> Sequence[RowIds]:
        batch = self.batch(step)
        return [np.sort(batch[lo:hi]) for lo, hi in pairwise(bounds)]


def chunk_bounds(chunk_sizes: NDArray[np.float64], batch_size: int) -> tuple[int, ...]:
    """(chunks + 1,) where to cut a batch: rounded running sums of the chunks' fractions, from 0 to batch_size.

    No chunk is off its fraction by more than a row; with more chunks than rows some are empty.
    """
    cuts = np.rint(np.cumsum(chunk_sizes) * batch_size).astype(int)
    cuts[-1] = batch_size
    return (0, *cuts.tolist())
