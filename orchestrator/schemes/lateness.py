"""How long a stretch may take before it counts as late: a quantile of D + slope * K, learnt from those that were made.

What is in flight counts as well (Kaplan and Meier): it says how slow the slow are long before they answer. Depends on
the events alone, not on a clock, so that a replayed record gives the same instants. Read next: `stretch.py`.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from gradmux.orchestrator.schemes.asks import Call
from gradmux.orchestrator.schemes.delay_estimate import kaplan_meier, slope_of

WINDOW = 256
"""answers that are remembered"""
FEWEST = 8
"""answers before anything is called late"""
UNSEEN = 2.0
"""where the quantile lies beyond all that has come: so many times the longest that has"""


class Lateness:
    """Hears of invocations; answers `limit_s`."""

    def __init__(self, quantile: float) -> None:
        """`quantile` 1: nothing is ever late."""
        self._quantile = quantile
        self._running: dict[Call, tuple[float, float]] = {}
        """load, start"""
        self._known: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        """load, seconds"""
        self._now_s = 0.0
        self._limits: dict[float, float] = {}
        """by load, since the last answer"""

    def began(self, call: Call, load: float, at_s: float) -> None:
        """The invocation is on its way since `at_s`."""
        self._running[call] = load, at_s
        self._now_s = max(self._now_s, at_s)

    def ended(self, call: Call, at_s: float, answered: bool) -> None:
        """It came back; a failure says nothing about delays."""
        load, start_s = self._running.pop(call)
        self._now_s = max(self._now_s, at_s)
        if answered:
            self._known.append((load, at_s - start_s))
            self._limits.clear()

    def limit_s(self, load: float) -> float | None:
        """Seconds after which an invocation of this load is late; None: never, or not known yet."""
        if self._quantile >= 1 or len(self._known) < FEWEST:
            return None
        if load not in self._limits:
            self._limits[load] = self._quantile_s(load)
        return self._limits[load]

    def _quantile_s(self, load: float) -> float:
        known = np.array(self._known)
        running = np.array(list(self._running.values())).reshape(-1, 2)
        slope_s = slope_of(known) if np.ptp(known[:, 0]) > 0 else 0.0
        ended_s = known[:, 1] + slope_s * (load - known[:, 0])
        age_s = self._now_s - running[:, 1] + slope_s * (load - running[:, 0])
        times_s, survival = kaplan_meier(ended_s, age_s)
        late = np.flatnonzero(survival <= 1.0 - self._quantile + math.ulp(1.0))
        limit_s = float(times_s[late[0]] if late.size else UNSEEN * times_s[-1])
        return max(limit_s, 0.0)
