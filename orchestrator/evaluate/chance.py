"""Everything random, drawn as the loop draws it: which columns a round uses, and how each job's groups fall.

It depends on the seed, n and the number of columns alone, never on the delays: so one `Chance` serves all profiles of
one width. The columns come from the profile fleet's own `DelayTable`, and the groups from the scheme's own
`FractionalCode`: they cannot differ from a simulated run. Read next: `draws.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.fleets.profile_fleet import DelayTable
from gradmux.orchestrator.schemes.codes import FractionalCode

Kept: TypeAlias = NDArray[np.int32]
"""half the memory; many are kept"""
SECOND = 2
"""the attempt that a backup is"""


class Chance:
    """Draws once and remembers."""

    def __init__(self, columns: int, seed: int) -> None:
        self._columns, self._seed = columns, seed
        self._tables: dict[int, DelayTable] = {}
        self._rows: dict[tuple[int, int], Kept] = {}
        self._again: dict[tuple[int, int, int], int] = {}
        self._lines: dict[tuple[int, ...], Kept] = {}

    def row(self, workers: int, t: int) -> IntArray:
        """(workers,) the column that each of n workers has in round t."""
        if (workers, t) not in self._rows:
            self._rows[workers, t] = self._table(workers).columns(t).astype(np.int32)
        return self._rows[workers, t].astype(np.int64)

    def again(self, t: int, worker: int, attempt: int = SECOND) -> int:
        """The column of a worker's second attempt in round t, or of a later one; the same for every n."""
        if (t, worker, attempt) not in self._again:
            self._again[t, worker, attempt] = self._table(self._columns).column(t, worker, attempt)
        return self._again[t, worker, attempt]

    def line(self, workers: int, *parts: int) -> IntArray:
        """(workers,) all workers, the members of each fractional group side by side, whatever the number of groups.

        A code with G groups cuts this line into G runs, see `cover.py`. `parts`: job, or job and group.
        """
        if (workers, *parts) not in self._lines:
            finest = FractionalCode(workers, 0, self._seed).draw(*parts)
            self._lines[workers, *parts] = np.argsort(np.array(finest.group)).astype(np.int32)
        return self._lines[workers, *parts].astype(np.int64)

    def _table(self, workers: int) -> DelayTable:
        if workers not in self._tables:
            self._tables[workers] = DelayTable(np.zeros((1, self._columns)), workers, self._seed)
        return self._tables[workers]
