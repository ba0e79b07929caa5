"""Each round's delays for n workers, in order of worker and in order of arrival; and each job's groups.

Knows no scheme. Read next: `cover.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.chance import Chance
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.scheme import FloatArray


class Draws:
    """Delays and groups of the first rounds for n workers, before any load is added."""

    def __init__(self, setting: Setting, chance: Chance, workers: int, rounds: int) -> None:
        self.workers = workers
        self._measured_s, self._chance = setting.delays_s, chance
        self.reach(rounds)

    def reach(self, rounds: int) -> None:
        """Draws up to so many rounds."""
        self.rounds = rounds
        columns = np.array([self._chance.row(self.workers, t) for t in range(rounds)])
        rows = np.arange(rounds) % len(self._measured_s)
        self.delays_s: FloatArray = self._measured_s[rows[:, np.newaxis], columns]
        """(rounds, workers)"""
        self.order: IntArray = np.argsort(self.delays_s, axis=1, kind="stable")
        """(rounds, workers) who answers first, second, ...; equal delays by worker, as the fleet does"""
        self.sorted_s: FloatArray = np.take_along_axis(self.delays_s, self.order, axis=1)
        """(rounds, workers) the delays in that order"""

    def second_s(self, t: int, workers: IntArray) -> FloatArray:
        """Delays of the second attempts of these workers in round t."""
        columns = np.array([self._chance.second(t, worker) for worker in workers.tolist()], dtype=np.int64)
        second_s: FloatArray = self._measured_s[t % len(self._measured_s), columns]
        return second_s

    def lineup(self, *parts: int) -> IntArray:
        """(workers,) the groups of one job, or of one coded group of it: see `Chance.line`."""
        return self._chance.line(self.workers, *parts)


def group_sizes(workers: int, chunks: int) -> NDArray[np.int64]:
    """(chunks,) members of each group of the fractional code with that many groups, in the order of the line-up."""
    word = FractionalCode(workers, workers // chunks - 1).draw(0)
    return np.bincount(np.array(word.group), minlength=chunks)
