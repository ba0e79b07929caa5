"""What is still running of all rounds, for many parameter sets at once: concurrency limits and in-flight caps.

An invocation cannot be taken back: what arrives after its round has closed occupies the account's concurrency all the
same. Knows no scheme. Read next: `timeline.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.scheme import FloatArray


class InFlight:
    """Arrival times of what is running, a row per column (parameter set)."""

    def __init__(self, columns: int) -> None:
        self._at_s: FloatArray = np.empty((columns, 0))
        """(columns, places) ascending; -inf: a free place"""
        self.peak: IntArray = np.zeros(columns, dtype=np.int64)
        """(columns,) most that were running at any instant"""

    def add(self, at_s: FloatArray) -> None:
        """Invocations that will arrive at these instants (columns, any number); -inf: none."""
        # Both parts are sorted or nearly so: the stable sort merges such runs in linear time.
        self._at_s = np.sort(np.concatenate([self._at_s, at_s], axis=1), axis=1, kind="stable")
        np.maximum(self.peak, np.isfinite(self._at_s).sum(axis=1), out=self.peak)

    def replace(self, old_s: FloatArray, new_s: FloatArray) -> None:
        """What was to arrive at `old_s` (columns, any number) does so at `new_s`."""
        for column, place in np.argwhere(old_s != new_s).tolist():
            row = self._at_s[column]
            row[np.searchsorted(row, old_s[column, place])] = new_s[column, place]
            row.sort()

    def at_most(self, allowed: int | IntArray) -> FloatArray:
        """(columns,) the instant from which no more than `allowed` are running; -inf: that is so already."""
        columns, places = self._at_s.shape
        place = places - 1 - np.broadcast_to(allowed, (columns,))
        if not places:
            return np.full(columns, -np.inf)
        at_s = self._at_s[np.arange(columns), np.maximum(place, 0)]
        return np.where(place < 0, -np.inf, at_s)

    def count(self, now_s: FloatArray) -> IntArray:
        """(columns,) how many are running after `now_s` (columns,)."""
        found: IntArray = (self._at_s > now_s[:, np.newaxis]).sum(axis=1)
        return found

    def row(self, column: int) -> list[float]:
        """Arrivals of one column, ascending."""
        at_s = self._at_s[column]
        found: list[float] = at_s[np.isfinite(at_s)].tolist()
        return found

    def drop(self, now_s: FloatArray) -> None:
        """Forgets what has arrived by `now_s` (columns,)."""
        self._at_s[self._at_s <= now_s[:, np.newaxis]] = -np.inf
        most = int(np.isfinite(self._at_s).sum(axis=1).max(initial=0))
        self._at_s = self._at_s[:, self._at_s.shape[1] - most :]
