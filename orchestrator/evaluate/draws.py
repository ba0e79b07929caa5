"""Everything random, drawn as the loop draws it: each round's delays for n workers, and each job's groups.

The delays come from the profile fleet's own `DelayTable` and the groups from the scheme's own `FractionalCode`, so
they cannot differ from a simulated run. Knows no scheme. Read next: `cover.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.evaluate.bits import IntArray
from orchestrator.evaluate.setting import Setting
from orchestrator.fleets.profile_fleet import DelayTable
from orchestrator.schemes.codes import FractionalCode
from orchestrator.schemes.scheme import FloatArray


class Draws:
    """Delays and groups of the first rounds for n workers, before any load is added."""

    def __init__(self, setting: Setting, workers: int, rounds: int) -> None:
        self.workers = workers
        self._seed = setting.seed
        self._table = DelayTable(setting.delays_s, workers, setting.seed)
        self._line_ups: dict[tuple[int, ...], IntArray] = {}
        self.reach(rounds)

    def reach(self, rounds: int) -> None:
        """Draws up to so many rounds."""
        self.rounds = rounds
        self.delays_s: FloatArray = np.stack([self._table.row(t) for t in range(rounds)])
        """(rounds, workers)"""
        self.order: IntArray = np.argsort(self.delays_s, axis=1, kind="stable")
        """(rounds, workers) who answers first, second, ...; equal delays by worker, as the fleet does"""
        self.sorted_s: FloatArray = np.take_along_axis(self.delays_s, self.order, axis=1)
        """(rounds, workers) the delays in that order"""

    def second_s(self, round_index: int, workers: IntArray) -> FloatArray:
        """Delays of the second attempts of these workers."""
        return np.array([self._table.delay_s(round_index, int(worker), 2) for worker in workers])

    def lineup(self, *parts: int) -> IntArray:
        """(workers,) all workers, the members of each fractional group side by side, whatever the number of groups.

        A code with G groups cuts this line into G runs, see `cover.py`. `parts`: job, or job and group.
        """
        if parts not in self._line_ups:
            finest = FractionalCode(self.workers, 0, self._seed).draw(*parts)
            self._line_ups[parts] = np.argsort(np.array(finest.group))
        return self._line_ups[parts]


def group_sizes(workers: int, chunks: int) -> NDArray[np.int64]:
    """(chunks,) members of each group of the fractional code with that many groups, in the order of the line-up."""
    word = FractionalCode(workers, workers // chunks - 1).draw(0)
    return np.bincount(np.array(word.group), minlength=chunks)
