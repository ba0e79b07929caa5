"""Each round's delays for n workers, in order of worker and in order of arrival; and each job's groups.

Knows no scheme. Read next: `cover.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.chains import Chains
from gradmux.orchestrator.evaluate.chance import Chance
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.scheme import FloatArray

TIE_S = 1e-11
"""calls that are found to have failed at one instant, and then draw one column, answer in order of worker, as in the
loop: one of them may close the round before the next is heard"""


class Draws:
    """Delays and groups of the first rounds for n workers, before any load is added."""

    def __init__(self, setting: Setting, chance: Chance, workers: int, rounds: int) -> None:
        self.workers = workers
        self._measured_s, self._chance = setting.delays_s, chance
        self._found_s = setting.failures.instants(setting.delays_s) if np.isinf(setting.delays_s).any() else None
        """when failed calls are found; None: none fails"""
        self._attempts = setting.limits.attempts
        self.reach(rounds)

    def reach(self, rounds: int) -> None:
        """Draws up to so many rounds."""
        self.rounds = rounds
        columns = np.array([self._chance.row(self.workers, t) for t in range(rounds)])
        rows = np.arange(rounds) % len(self._measured_s)
        self.delays_s: FloatArray = self._measured_s[rows[:, np.newaxis], columns]
        """(rounds, workers) until the answer, failed attempts before it included; inf: all attempts fail"""
        self.worked_s: FloatArray = self.delays_s
        """(rounds, workers) the same, with 0 for the workers whose first attempt fails: see `chains`"""
        self._chains: dict[int, Chains] = {}
        if self._found_s is not None:
            self._invoke_again(columns, self._found_s[rows[:, np.newaxis], columns])
        self.order: IntArray = np.argsort(self.delays_s, axis=1, kind="stable")
        """(rounds, workers) who answers first, second, ...; equal delays by worker, as the fleet does"""
        self.sorted_s: FloatArray = np.take_along_axis(self.delays_s, self.order, axis=1)
        """(rounds, workers) the delays in that order"""

    def _invoke_again(self, columns: IntArray, found_s: FloatArray) -> None:
        """Puts the whole chain of attempts in the place of each call that fails."""
        self.worked_s = np.where(np.isinf(self.delays_s), 0.0, self.delays_s)
        for t in np.flatnonzero(np.isinf(self.delays_s).any(axis=1)).tolist():
            workers = np.flatnonzero(np.isinf(self.delays_s[t]))
            chains = [self._chain(t, worker, float(found_s[t, worker])) for worker in workers.tolist()]
            answers_s = np.array([answer_s for _, answer_s in chains])
            self._chains[t] = Chains(workers, np.array([fails_s for fails_s, _ in chains]), answers_s)
            self.delays_s[t, workers] = answers_s

    def _chain(self, t: int, worker: int, found_s: float) -> tuple[list[float], float]:
        """(attempts,) when each is found to have failed, and when one answers at last; both from the dispatch."""
        assert self._found_s is not None
        row = t % len(self._measured_s)
        fails_s = [found_s]
        for attempt in range(2, self._attempts + 1):
            column = self._chance.again(t, worker, attempt)
            delay_s = float(self._measured_s[row, column])
            if np.isfinite(delay_s):
                answer_s = fails_s[-1] + delay_s + TIE_S * worker
                return fails_s + [np.inf] * (self._attempts - len(fails_s)), answer_s
            fails_s.append(fails_s[-1] + float(self._found_s[row, column]))
        return fails_s, np.inf

    @property
    def failing(self) -> bool:
        """Does any call of these delays fail?"""
        return self._found_s is not None

    def at_first_s(self, rounds: int) -> FloatArray:
        """(rounds, workers) the first attempts' delays in order of arrival; -inf for each that fails."""
        sorted_s = self.sorted_s[:rounds]
        if self._chains:
            sorted_s = self.delays_s[:rounds].copy()
            for t, chains in self._chains.items():
                if t < rounds:
                    sorted_s[t, chains.workers] = -np.inf
            sorted_s.sort(axis=1)
        return sorted_s

    def chains(self, t: int) -> Chains | None:
        """What the workers of round t do whose first attempt fails; None: there are none."""
        return self._chains.get(t)

    def second_s(self, t: int, workers: IntArray) -> FloatArray:
        """Delays of the second attempts of these workers in round t."""
        columns = np.array([self._chance.again(t, worker) for worker in workers.tolist()], dtype=np.int64)
        second_s: FloatArray = self._measured_s[t % len(self._measured_s), columns]
        return second_s

    def lineup(self, *parts: int) -> IntArray:
        """(workers,) the groups of one job, or of one coded group of it: see `Chance.line`."""
        return self._chance.line(self.workers, *parts)


def group_sizes(workers: int, chunks: int) -> NDArray[np.int64]:
    """(chunks,) members of each group of the fractional code with that many groups, in the order of the line-up."""
    word = FractionalCode(workers, workers // chunks - 1).draw(0)
    return np.bincount(np.array(word.group), minlength=chunks)
