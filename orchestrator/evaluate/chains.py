"""Calls that fail: each worker's chain of attempts in one round, and what becomes of it when the round closes.

A chain's attempts follow each other without a gap: one is sent at the instant at which the one before is found to have
failed, as long as the round is open and attempts are left. So a round that closes cuts the chain at the next failure,
and no answer comes. Only an answer's delay grows with the load; when a failure is found does not depend on it.
Knows no scheme. Read next: `draws.py`, which makes them; `timeline.py`, which plays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """The chains of one round's workers whose first attempt fails, a cell each."""

    workers: IntArray
    """(cells,)"""
    fails_s: FloatArray
    """(cells, attempts) from the dispatch until each attempt is found to have failed; inf: it does not fail"""
    answers_s: FloatArray
    """(cells,) from the dispatch to the answer, before any load; inf: all attempts fail"""

    def over(self, start_s: FloatArray, shift_s: FloatArray, closed_s: FloatArray | float = np.inf) -> Over:
        """What becomes of them in rounds dispatched at `start_s` (columns,) that close at `closed_s`.

        `shift_s`: (columns,) what the load adds to an answer's delay.
        """
        fails_s = start_s[:, np.newaxis, np.newaxis] + self.fails_s
        answers_s = start_s[:, np.newaxis] + (self.answers_s + shift_s[:, np.newaxis])
        return over(fails_s, answers_s, np.broadcast_to(closed_s, start_s.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Over:
    """How chains end; all arrays are (columns, cells)."""

    at_s: FloatArray
    """when nothing of the chain runs any more"""
    sent: IntArray
    """attempts"""
    cut: BoolArray
    """has the close of the round kept it from its answer?"""


def over(fails_s: FloatArray, answers_s: FloatArray, closed_s: FloatArray) -> Over:
    """How chains end whose failures are found at `fails_s` (columns, cells, attempts), in rounds that close at
    `closed_s` (columns,); `answers_s` (columns, cells): when they would answer."""
    closed_s = closed_s[:, np.newaxis, np.newaxis]
    before = fails_s < closed_s
    cut_s = np.where(before, np.inf, fails_s).min(axis=2)
    last_s = np.where(np.isfinite(fails_s), fails_s, -np.inf).max(axis=2)
    uncut_s = np.where(np.isinf(answers_s), last_s, answers_s)
    cut = np.isfinite(cut_s)
    sent = np.minimum(1 + before.sum(axis=2), fails_s.shape[2])
    return Over(np.where(cut, cut_s, uncut_s), sent, cut)


@dataclass(frozen=True, slots=True, eq=False)
class ChainTable:
    """Many rounds' chains side by side, for columns that are in different rounds."""

    fails_s: FloatArray
    """(rows, most cells of any row, attempts), as `Chains.fails_s`; inf beyond a row's cells"""
    answers_s: FloatArray
    """(rows, most cells)"""
    cells: BoolArray
    """(rows, most cells) is there such a cell?"""

    @classmethod
    def of(cls, rows: Sequence[Chains | None], attempts: int) -> ChainTable:
        """The chains of these rounds, None where there are none."""
        most = max((0 if row is None else row.workers.size for row in rows), default=0)
        table = cls(
            np.full((len(rows), most, attempts), np.inf),
            np.full((len(rows), most), np.inf),
            np.zeros((len(rows), most), dtype=np.bool_),
        )
        for place, row in enumerate(rows):
            if row is not None:
                count = row.workers.size
                table.fails_s[place, :count], table.answers_s[place, :count] = row.fails_s, row.answers_s
                table.cells[place, :count] = True
        return table

    def over(self, rows: IntArray, start_s: FloatArray, shift_s: FloatArray, closed_s: FloatArray) -> Over:
        """What becomes of them: column p is in row `rows[p]`, dispatched at `start_s[p]`, closed at `closed_s[p]`."""
        fails_s = start_s[:, np.newaxis, np.newaxis] + self.fails_s[rows]
        answers_s = start_s[:, np.newaxis] + (self.answers_s[rows] + shift_s[:, np.newaxis])
        return over(fails_s, answers_s, closed_s)
