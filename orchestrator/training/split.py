"""Some rows of a data set, by a seed or by number: for judging models by rows that they are not trained on.

The same seed gives the same rows on every machine and library version. Knows no job. Read `data.py` next.
"""

from __future__ import annotations

import numpy as np

from gradmux.lambda_worker.layout import Column
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import BLOCK_BYTES, Array, Arrays, Dataset, Labels, Source, labels_of, wider

PURPOSE = 0x76616C
"""beside the seed, so that these random numbers are not those of the order of rows"""


class ChosenRows:
    """`Source`: some rows of another, in this order."""

    def __init__(self, source: Source, rows: Array) -> None:
        self._source, self._rows = source, rows

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._source.columns

    def read(self, lo: int, hi: int) -> Arrays:
        return self._source.take(self._rows[lo:hi])

    def take(self, rows: Array) -> Arrays:
        return self._source.take(self._rows[rows])

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
    bits = np.random.PCG64(np.random.SeedSequence([seed, PURPOSE])).random_raw(dataset.rows)
    order = np.argsort(bits, kind="stable")
    parts = [ChosenRows(dataset.source, np.sort(rows)) for rows in (order[count:], order[:count])]
    train, judged = (Dataset.over(part, dataset.told) for part in parts)
    return train, judged
