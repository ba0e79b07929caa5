"""The batch order as the client needs it: refused in a user's words, and cut into the chunks that schemes deal out.

Which rows a step uses is `lambda_worker/order.py`'s, which workers call too. A chunk is a whole number of passes.
Pure. Read `requests.py` next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gradmux.lambda_worker import order
from gradmux.lambda_worker.order import RowIds
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.passes import chunk_bounds

__all__ = ["BatchOrder", "RowIds", "chunk_bounds", "pass_count"]


class BatchOrder(order.BatchOrder):
    """The batches of one data set under one seed; models with the same seed share it."""

    def __init__(
        self,
        rows: int,
        batch_size: int,
        seed: int = 0,
        *,
        shuffle: bool = True,
        sampling: order.Sampling | None = None,
    ) -> None:
        """`sampling` gives (rows,) in proportion to what rows are drawn, or None.

        Raises: ConfigError when the data set has fewer rows than a batch."""
        if batch_size > rows:
            raise ConfigError(f"batch_size = {batch_size} is more than the {rows} rows of the training data")
        super().__init__(rows, batch_size, seed, shuffle=shuffle, sampling=sampling)

    def chunks(self, step: int, bounds: tuple[int, ...], passes: int | None = None) -> Sequence[RowIds]:
        """The rows of each chunk of a batch of `passes` (None: of one row each) that is cut at `bounds`, ascending."""
        return [self.rows_of(step, passes or self.batch_size, first, end) for first, end in pairwise(bounds)]


def pass_count(batch_size: int, pass_rows: int | None) -> int:
    """P, into how many passes of at most `pass_rows` rows a batch is cut; None: of a row each."""
    return batch_size if pass_rows is None else -(-batch_size // pass_rows)
