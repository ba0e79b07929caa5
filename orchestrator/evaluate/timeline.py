"""When rounds start and close: from each round's own duration to the run's, under concurrency and in-flight cap.

`Timeline` plays rounds one by one with absolute instants, as the loop does. Knows no scheme. Read next: `played.py`.
"""

from __future__ import annotations

import math

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.in_flight import InFlight
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


class Timeline:
    """The clock of each column (parameter set). Per round: `dispatch`, then `close`."""

    def __init__(self, setting: Setting, workers: int, columns: int, *, watch: bool = True) -> None:
        """`watch`: keep account of what is in flight even where nothing depends on it."""
        cap = in_flight_cap(setting)
        concurrency = setting.limits.concurrency
        self._cap = None if cap is None else math.floor(cap * workers)
        self._concurrency = concurrency
        self._room = None if concurrency is None else concurrency - workers
        """what may still be running when a round is dispatched"""
        self._running = InFlight(columns) if watch or limited(setting) else None
        self.start_s: FloatArray = np.zeros(columns)
        """(columns,) dispatch of the current round"""
        self.total_s: FloatArray = np.zeros(columns)
        """(columns,) when the last round closed"""
        self._durations_s: list[FloatArray] = []

    def dispatch(self, delays_s: FloatArray, asked: BoolArray) -> FloatArray:
        """Sends the current round; returns when everybody who is `asked` (columns, n) arrives, inf for the others."""
        at_s: FloatArray = np.where(asked, self.start_s[:, np.newaxis] + delays_s, np.inf)
        if self._running is not None:
            self._running.drop(self.start_s)
            self._running.add(np.where(asked, at_s, -np.inf))
        return at_s

    def more(self, now_s: FloatArray, at_s: FloatArray) -> None:
        """Invokes more for the current round at `now_s`, to arrive at `at_s` (columns, any number), inf for none."""
        if self._running is not None:
            self._running.drop(now_s)
            self._running.add(np.where(np.isfinite(at_s), at_s, -np.inf))

    def room_s(self, now_s: FloatArray) -> FloatArray:
        """(columns,) further invocations that the concurrency allows at `now_s`; inf where it is not limited."""
        if self._concurrency is None or self._running is None:
            return np.full(now_s.size, np.inf)
        return (self._concurrency - self._running.count(now_s)).astype(np.float64)

    def running_s(self, column: int) -> list[float]:
        """When everything arrives that is in flight in one column."""
        return [] if self._running is None else self._running.row(column)

    def capped_s(self, ready_s: FloatArray) -> FloatArray:
        """(columns,) when a round may close that could at `ready_s`, given the in-flight cap."""
        if self._cap is None or self._running is None:
            return ready_s
        return np.maximum(ready_s, self._running.at_most(self._cap))

    def close(self, end_s: FloatArray, playing: BoolArray) -> None:
        """The round closes at `end_s`. Columns that are not `playing` have done with the run: their clock stands."""
        end_s = np.where(playing, end_s, self.start_s)
        self._durations_s.append(end_s - self.start_s)
        self.total_s = np.where(playing, end_s, self.total_s)
        following_s = end_s
        if self._room is not None and self._running is not None:
            following_s = np.maximum(end_s, self._running.at_most(self._room))
        self.start_s = np.where(playing, following_s, self.start_s)

    @property
    def durations_s(self) -> FloatArray:
        """(rounds, columns) from dispatch to close."""
        return np.array(self._durations_s)

    @property
    def peak(self) -> IntArray | None:
        """(columns,) most invocations in flight at any instant; None where nobody kept account."""
        if self._running is None:
            return None
        peak = self._running.peak
        return peak if self._concurrency is None else np.minimum(peak, self._concurrency)


def in_flight_cap(setting: Setting) -> float | None:
    """The cap, as far as the wait policy heeds it: the papers' rule closes a round whatever is in flight."""
    return None if isinstance(setting.wait, Mu) else setting.limits.in_flight_cap


def limited(setting: Setting) -> bool:
    """Does it matter what is in flight?"""
    return setting.limits.concurrency is not None or in_flight_cap(setting) is not None
