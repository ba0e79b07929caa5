"""How long invocations take, learnt from those that came back and those that have not: distribution, slope, workers.

A delay is taken as D + slope * load, D drawn anew for each invocation. The slope is fitted to the medians of rounds
with different loads; while all have had the same load it is 0, and D includes what that load takes. The distribution
of D is the Kaplan-Meier estimate, since what is still in flight says how slow the slow are long before they answer.
Workers that have been fast are ranked before those that have not: indices stay slow for many rounds on some platforms,
and where they do not, no order is worse than another.

What was measured elsewhere (`Expected`) is where the estimate begins: delays of others stand beside its own, the fewer
the more there are of these, and the slope that was tried counts as one that is known to half of itself.

Depends on the events alone, not on a clock, so that a replayed record gives the same estimates. Knows neither jobs nor
codes. Source: Kaplan and Meier 1958. Read next: `sizing.py`, which chooses n and s by it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.schemes.asks import Call
from gradmux.orchestrator.schemes.scheme import Expected, FloatArray

WINDOW = 1024
"""delays that are remembered"""
ROUNDS = 256
"""rounds that are remembered for the slope"""
FEWEST_ROUNDS = 4
"""rounds that a slope needs"""
MEMORY = 0.95
"""share that a worker's former delays keep when a new one comes"""
PRIOR = 2.0
"""delays like everybody's that a worker is taken to have had"""
LEAST_S = 1e-3
"""seconds; no delay without load is taken for less"""
ONE_LOAD = 1e-9
"""loads that differ by less are equal"""
POINTS = 128
"""of the distribution that are kept"""
OTHERS = 48
"""delays of others that stand beside so many of its own"""
DOUBT = 0.5
"""standard error of a slope that was tried elsewhere, as a share of it"""
CERTAIN_S = 1e-9
"""no standard error of a slope is taken for less"""


@dataclass(frozen=True, slots=True)
class Delays:
    """The distribution of D, and the slope."""

    times_s: FloatArray
    """(points,) ascending"""
    survival: FloatArray
    """(points,) chance that D is longer than that"""
    slope_s: float
    """seconds per unit load"""

    @property
    def mean_s(self) -> float:
        """E[D]; what is longer than all that was seen counts as the longest."""
        return float(self.times_s[0] + self.survival[:-1] @ np.diff(self.times_s))


@dataclass(slots=True)
class _Count:
    """Invocations of one round."""

    began: int = 0
    ended: int = 0

    @property
    def halfway(self) -> bool:
        """Was that answer the median one?"""
        return self.ended == (self.began + 1) // 2


class DelayEstimate:
    """Hears of invocations; answers `delays` and `ranked`."""

    def __init__(self, workers: int, expected: Expected | None = None) -> None:
        """`expected`: what to begin with."""
        self._expected_s: FloatArray = np.sort(np.maximum(expected.delays_s if expected else (), LEAST_S))
        self._tried_s = expected.slope_s if expected else None
        self._running: dict[Call, tuple[float, float]] = {}
        """load, start"""
        self._known: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        """load, delay"""
        self._rounds: dict[int, _Count] = {}
        """that have invocations in flight"""
        self._medians: deque[tuple[float, float]] = deque(maxlen=ROUNDS)
        """load, median delay of one round"""
        self._slope_s = self._tried_s or 0.0
        self._now_s = 0.0
        self._sums: FloatArray = np.zeros(workers)
        self._counts: FloatArray = np.zeros(workers)
        """of the logarithms of D, former ones fading"""

    @property
    def ready(self) -> bool:
        """Is enough known for an estimate?"""
        return self.expects or len(self._medians) >= FEWEST_ROUNDS

    @property
    def expects(self) -> bool:
        """Did it begin with delays of elsewhere?"""
        return bool(self._expected_s.size)

    @property
    def _seen_slope(self) -> bool:
        """Do the rounds tell a slope?"""
        return len(self._medians) >= FEWEST_ROUNDS and float(np.ptp([load for load, _ in self._medians])) > ONE_LOAD

    def began(self, call: Call, load: float, at_s: float) -> None:
        """The invocation is on its way since `at_s`."""
        self._running[call] = load, at_s
        self._rounds.setdefault(call.round, _Count()).began += 1
        self._now_s = max(self._now_s, at_s)

    def ended(self, call: Call, at_s: float, answered: bool) -> None:
        """It came back; a failure says nothing about delays."""
        load, start_s = self._running.pop(call)
        self._now_s = max(self._now_s, at_s)
        self._count_down(call.round, load, at_s - start_s)
        if answered:
            self._known.append((load, at_s - start_s))
            without_load_s = max(at_s - start_s - self._slope_s * load, LEAST_S)
            self._sums[call.worker] = MEMORY * self._sums[call.worker] + math.log(without_load_s)
            self._counts[call.worker] = MEMORY * self._counts[call.worker] + 1.0

    def _count_down(self, round_index: int, load: float, delay_s: float) -> None:
        """A round's answers come in the order of their delays, so the middle one is the median."""
        count = self._rounds[round_index]
        count.ended += 1
        if count.halfway:
            self._medians.append((load, delay_s))
        if count.ended == count.began:
            del self._rounds[round_index]

    def ranked(self, shuffled: NDArray[np.int64]) -> NDArray[np.int64]:
        """The workers (in any order) from fast to slow by their own delays; those not told apart stay in that order."""
        everybody = self._sums.sum() / max(self._counts.sum(), 1.0)
        score = (self._sums + PRIOR * everybody) / (self._counts + PRIOR)
        return shuffled[np.argsort(score[shuffled], kind="stable")]

    def delays(self) -> Delays:
        """The estimate now. Needs `ready`."""
        known = np.array(self._known).reshape(-1, 2)
        running = np.array(list(self._running.values())).reshape(-1, 2)
        slope_s = self._slope_s = self._slope()
        ended_s = np.concatenate([known[:, 1] - slope_s * known[:, 0], self._others_s()])
        age_s = self._now_s - running[:, 1] - slope_s * running[:, 0]
        times_s, survival = kaplan_meier(np.maximum(ended_s, LEAST_S), age_s)
        kept = np.unique(np.linspace(0, len(times_s) - 1, POINTS).astype(np.intp))
        return Delays(times_s[kept], survival[kept], slope_s)

    def _others_s(self) -> FloatArray:
        """Those that stand beside its own."""
        if not self._expected_s.size:
            return self._expected_s
        count = round(OTHERS * OTHERS / (OTHERS + len(self._known)))
        places = (np.arange(count) + 0.5) * (self._expected_s.size / max(count, 1))
        return self._expected_s[places.astype(np.intp)]

    def _slope(self) -> float:
        """By the rounds; by what was tried, where they do not tell."""
        if not self._seen_slope:
            return self._tried_s or 0.0
        return slope_of(np.array(self._medians), self._tried_s)


def slope_of(medians: FloatArray, tried_s: float | None = None) -> float:
    """Least squares through (load, median delay), one point per round, less its standard error: no slope unless seen.

    Rounds differ more than their medians err, hence one point each. A slope that was tried elsewhere takes the place of
    none: both count by what they are sure of.
    """
    load, delay_s = medians[:, 0] - medians[:, 0].mean(), medians[:, 1] - medians[:, 1].mean()
    slope_s = float(load @ delay_s / (load @ load))
    left_s = delay_s - slope_s * load
    error_s = math.sqrt(left_s @ left_s / max(len(medians) - 2, 1) / (load @ load))
    if not tried_s:
        return max(0.0, slope_s - error_s)
    seen, tried = max(error_s, CERTAIN_S) ** -2, (DOUBT * tried_s) ** -2
    return max(0.0, (seen * slope_s + tried * tried_s) / (seen + tried))


def kaplan_meier(ended_s: FloatArray, age_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ascending times of the ended ones, and the chance of taking longer; the others have taken `age_s` so far."""
    times_s: FloatArray = np.concatenate([ended_s, age_s])
    order = np.argsort(times_s, kind="stable")
    ended = order < len(ended_s)
    survival = np.cumprod(1.0 - ended / np.arange(len(order), 0, -1.0)).astype(np.float64)
    return times_s[order][ended], survival[ended]
