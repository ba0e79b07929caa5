"""When the answers to jobs suffice, with absolute instants, for many parameter sets of one code family at once.

`Fractional` and `Cyclic` do the same for their codes: take in when each worker answers for a job, say when that
decodes, and who would have to repeat. Instants are seconds; inf: never. Knows no scheme. Read next: `repeat.py`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.cover import Cover, kth
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


class Answers(Protocol):
    """The answers to each job, a row per column (parameter set)."""

    def add(self, job: int, at_s: FloatArray) -> FloatArray:
        """Workers answer for `job` at `at_s` (columns, n), besides those added before; returns when it decodes."""
        ...

    def forget_after(self, job: int, now_s: FloatArray) -> FloatArray:
        """What comes after `now_s` (columns,) does not count; returns when the job decodes."""
        ...

    def repeats(self, job: int, now_s: FloatArray) -> BoolArray:
        """(columns, n) the fewest workers that complete `job` by repeating, given what is in at `now_s`."""
        ...

    def drop(self, job: int) -> None:
        """Nothing more will be asked about `job`."""
        ...


class Fractional:
    """First answers by group. Each uncovered group's lowest worker repeats."""

    def __init__(self, batch: Batch, draws: Draws) -> None:
        self._cover, self._draws = Cover(batch.workers, batch.chunks()), draws
        self._first_s: dict[int, FloatArray] = {}
        """job -> (groups of all columns,) first answer"""

    def add(self, job: int, at_s: FloatArray) -> FloatArray:
        first_s = self._cover.by_group(at_s[:, self._draws.lineup(job)])
        known_s = self._first_s.get(job)
        self._first_s[job] = first_s if known_s is None else np.minimum(known_s, first_s)
        return self._cover.worst(self._first_s[job])

    def forget_after(self, job: int, now_s: FloatArray) -> FloatArray:
        first_s = self._first_s[job]
        first_s[first_s > now_s[self._cover.column]] = np.inf
        return self._cover.worst(first_s)

    def repeats(self, job: int, now_s: FloatArray) -> BoolArray:
        open_ = self._first_s[job] > now_s[self._cover.column]
        return self._cover.lowest_of(open_, self._draws.lineup(job))

    def drop(self, job: int) -> None:
        self._first_s.pop(job, None)


class Cyclic:
    """Answers by worker; any n - s of them decode. The lowest workers that lack one repeat."""

    def __init__(self, batch: Batch, draws: Draws) -> None:
        self._needed = draws.workers - batch.tolerance()
        self._at_s: dict[int, FloatArray] = {}
        """job -> (columns, n) first answer"""

    def add(self, job: int, at_s: FloatArray) -> FloatArray:
        known_s = self._at_s.get(job)
        self._at_s[job] = at_s.copy() if known_s is None else np.minimum(known_s, at_s)
        return kth(self._at_s[job], self._needed - 1)

    def forget_after(self, job: int, now_s: FloatArray) -> FloatArray:
        at_s = self._at_s[job]
        at_s[at_s > now_s[:, np.newaxis]] = np.inf
        return kth(at_s, self._needed - 1)

    def repeats(self, job: int, now_s: FloatArray) -> BoolArray:
        lacking = self._at_s[job] > now_s[:, np.newaxis]
        needed: IntArray = self._needed - (~lacking).sum(axis=1)
        return lacking & (np.cumsum(lacking, axis=1) <= needed[:, np.newaxis])

    def drop(self, job: int) -> None:
        self._at_s.pop(job, None)


def answers_for(batch: Batch, draws: Draws) -> Answers:
    """The answers for the batch's code."""
    return Fractional(batch, draws) if batch.code == "fractional" else Cyclic(batch, draws)
