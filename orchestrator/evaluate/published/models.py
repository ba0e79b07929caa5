"""The papers' straggler models for thousands of parameter sets at once: may exactly these workers straggle now?

Each model mirrors a class of `schemes/stragglers.py`, and tests hold the two together. A row stands for parameter sets
that differ in lambda (`most`) alone and have decided alike so far: so a model does not say yes or no but from which
lambda on it would say yes. Source: Krishnan, Ebrahimi, Khisti 2023, section 2. Read next: `mu_rule.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gradmux.orchestrator.evaluate import bits
from gradmux.orchestrator.evaluate.bits import Bits, IntArray
from gradmux.orchestrator.evaluate.published.unions import Past, SlidingUnions
from gradmux.orchestrator.schemes.scheme import BoolArray
from gradmux.orchestrator.schemes.selective_repeat import counts_stragglers

NEVER = np.iinfo(np.int64).max
"""no lambda would do"""


class Model(Protocol):
    """One straggler model, a row per class of parameter sets."""

    def least(self, late: Bits, rows: IntArray) -> IntArray:
        """The least lambda for which exactly `late` (rows, words) may straggle in these rows now, or NEVER."""
        ...

    def commit(self, late: Bits) -> None:
        """The current round closes with stragglers `late`, a set for every row."""
        ...

    def fork(self, parents: IntArray, rows: int) -> None:
        """New rows, behind the `rows` there are, as copies of these."""
        ...


class PerRound:
    """At most s stragglers in each round."""

    def __init__(self, stragglers: IntArray) -> None:
        self._stragglers = stragglers

    def least(self, late: Bits, rows: IntArray) -> IntArray:
        return np.where(bits.size(late) <= self._stragglers[rows], 0, NEVER)

    def commit(self, late: Bits) -> None:
        """Nothing to remember."""

    def fork(self, parents: IntArray, rows: int) -> None:
        self._stragglers = np.concatenate([self._stragglers, self._stragglers[parents]])


class _Window:
    """What the windowed models share: at most lambda in the last rounds, and workers that may not straggle now."""

    def __init__(self, window: IntArray, workers: int) -> None:
        self._unions = SlidingUnions(window - 1, workers)
        self._past = self._unions.union()
        """stragglers of the window so far"""
        self._barred = np.zeros_like(self._past)

    def least(self, late: Bits, rows: IntArray) -> IntArray:
        distinct = bits.size(late | self._past.take(rows, axis=0))
        refused = bits.meet(late, self._barred.take(rows, axis=0))
        nobody = bits.size(late) == 0
        return np.where(nobody, 0, np.where(refused, NEVER, distinct))

    def commit(self, late: Bits) -> None:
        self._unions.push(late)
        self._past = self._unions.union()

    def fork(self, parents: IntArray, rows: int) -> None:
        self._unions.fork(parents, rows)
        self._past = np.concatenate([self._past, self._past[parents]])
        self._barred = np.concatenate([self._barred, self._barred[parents]])


class Bursty(_Window):
    """(B, W, lambda): barred is who straggled in one of the rounds r-W+1 .. r-B."""

    def __init__(self, burst: IntArray, window: IntArray, workers: int) -> None:
        super().__init__(window, workers)
        self._burst = burst
        self._latest = Past(int(burst.max()), workers, burst.size)
        self._old = SlidingUnions(window - burst, workers)

    def commit(self, late: Bits) -> None:
        super().commit(late)
        self._latest.push(late)
        self._old.push(self._latest.ago(self._burst))
        self._barred = self._old.union()

    def fork(self, parents: IntArray, rows: int) -> None:
        super().fork(parents, rows)
        self._burst = np.concatenate([self._burst, self._burst[parents]])
        self._latest.fork(parents, rows)
        self._old.fork(parents, rows)


class Repeats:
    """Who repeats an older job's task in the current round, a set for each row."""

    def __init__(self, rows: int, workers: int) -> None:
        self.now: Bits = np.zeros((rows, bits.words_for(workers)), dtype=np.uint64)

    def fork(self, parents: IntArray, rows: int) -> None:
        """New rows as copies of these."""
        self.now = np.concatenate([self.now, self.now[parents]])


class PublishedBursty(Bursty):
    """SR-SGC's: a past round counts no stragglers if no repeat was answered in it and at most s were late."""

    def __init__(self, burst: IntArray, window: IntArray, tolerance: IntArray, repeats: Repeats, workers: int) -> None:
        super().__init__(burst, window, workers)
        self._tolerance, self._repeats = tolerance, repeats

    def commit(self, late: Bits) -> None:
        answered = bits.size(self._repeats.now & ~late) > 0
        super().commit(bits.keep(late, counts_stragglers(answered, bits.size(late), self._tolerance)))

    def fork(self, parents: IntArray, rows: int) -> None:
        super().fork(parents, rows)
        self._tolerance = np.append(self._tolerance, self._tolerance[parents])


class Arbitrary(_Window):
    """(N, W', lambda'): barred is who straggled N times in the last W' - 1 rounds."""

    def __init__(self, times: IntArray, window: IntArray, workers: int) -> None:
        super().__init__(window, workers)
        self._times, self._window, self._workers = times, window, workers
        self._all = Past(int(window.max()) - 1, workers, window.size)
        self._counts = np.zeros((times.size, workers), dtype=np.int16)

    def commit(self, late: Bits) -> None:
        super().commit(late)
        self._counts -= bits.unpack(self._all.ago(self._window - 1), self._workers)
        self._counts += bits.unpack(late, self._workers)
        self._all.push(late)
        self._barred = bits.pack(self._counts >= self._times[:, np.newaxis])

    def fork(self, parents: IntArray, rows: int) -> None:
        super().fork(parents, rows)
        self._all.fork(parents, rows)
        self._times, self._window, self._counts = (
            np.concatenate([state, state[parents]]) for state in (self._times, self._window, self._counts)
        )


class AnyOf:
    """Models of which one must hold over the whole history; after a pattern outside all, all are tried anew."""

    def __init__(self, models: Sequence[Model], rows: int) -> None:
        self._models = tuple(models)
        self._holds = np.ones((len(self._models), rows), dtype=np.bool_)

    @property
    def several(self) -> bool:
        """Is there more than one model?"""
        return len(self._models) > 1

    def admits(self, late: Bits, rows: IntArray, most: IntArray) -> BoolArray:
        """(models, rows) which model, if it still holds, admits `late` with lambda = `most` (rows,)."""
        admitted: BoolArray = np.array([model.least(late, rows) <= most for model in self._models])
        return self._holds[:, rows] & admitted

    def commit(self, late: Bits, most: IntArray) -> None:
        """The current round closes with stragglers `late`, a set for every row."""
        if self.several:
            self._holds = self.admits(late, np.arange(len(late)), most)
            self._holds |= ~self._holds.any(axis=0)
        for model in self._models:
            model.commit(late)

    def fork(self, parents: IntArray, rows: int) -> None:
        """New rows as copies of these."""
        self._holds = np.concatenate([self._holds, self._holds[:, parents]], axis=1)
        for model in self._models:
            model.fork(parents, rows)
