"""The papers' wait rule, vectorised: who is late at the cut, and how many of them a straggler model lets go.

With one additive shift for all delays of a round, the late workers are always the last k of one fixed order, whatever
the load. So k alone describes them, and the last k as a set come from one table per round. Delays are seconds.
Source: Krishnan, Ebrahimi, Khisti 2023, section 4. Read next: `one_round_mu.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray

Test: TypeAlias = Callable[[IntArray, IntArray], BoolArray]
"""(k, places) -> may the last k workers be late, at these places? The fewer, the better."""


class Cut:
    """(1 + mu) times the fastest answer, round by round; columns differ in the load's shift alone."""

    def __init__(self, draws: Draws, mu: float) -> None:
        self.mu = mu
        self.sorted_s = draws.sorted_s
        self.workers = draws.workers

    def late(self, t: int, shift_s: FloatArray, fastest_s: FloatArray | None = None) -> IntArray:
        """(columns,) how many workers of round t are late at the cut; the fastest took `fastest_s` before any load."""
        row_s = self.sorted_s[t]
        # d + shift > (1 + mu) (fastest + shift), solved for d: a threshold in the one sorted row of all columns.
        threshold_s = (1.0 + self.mu) * (row_s[0] if fastest_s is None else fastest_s) + self.mu * shift_s
        late: IntArray = self.workers - np.searchsorted(row_s, threshold_s, side="right")
        return late

    def closing(self, t: int, late: IntArray, let_go: IntArray) -> Closing:
        """When round t closes, if `late` were late at the cut and `let_go` of them are given up."""
        row_s = self.sorted_s[t]
        at_cut = (let_go == late) & (late > 0)
        base_s = np.where(at_cut, (1.0 + self.mu) * row_s[0], row_s[self.workers - 1 - let_go])
        return Closing(base_s, np.where(at_cut, 1.0 + self.mu, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Closing:
    """How long a round lasts: base_s + slope * shift."""

    base_s: FloatArray
    slope: FloatArray

    def only(self, playing: BoolArray) -> Closing:
        """This where `playing`, and no time at all elsewhere."""
        return Closing(np.where(playing, self.base_s, 0.0), self.slope * playing)

    def duration_s(self, shift_s: FloatArray) -> FloatArray:
        """Seconds, for delays shifted by `shift_s`."""
        return self.base_s + self.slope * shift_s


def most_admitted(admits: Test, late: IntArray) -> IntArray:
    """For each place the largest k <= late with which the last k workers may be late; 0 always may. By bisection."""
    low, high = np.zeros_like(late), late.copy()
    while (places := np.flatnonzero(low < high)).size:
        middle = (low[places] + high[places] + 1) // 2
        fits = admits(middle, places)
        low[places] = np.where(fits, middle, low[places])
        high[places] = np.where(fits, high[places], middle - 1)
    return low
