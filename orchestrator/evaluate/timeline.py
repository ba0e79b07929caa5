"""When rounds start and close: from each round's own duration to the run's, under concurrency and in-flight cap.

`Timeline` plays rounds one by one with absolute instants, as the loop does. Knows no scheme. Read next: `played.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.chains import Chains
from gradmux.orchestrator.evaluate.in_flight import InFlight
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Failing:
    """The workers of the current round whose first attempt fails."""

    chains: Chains
    shift_s: FloatArray
    """(columns,)"""
    asked: BoolArray
    """(columns, cells)"""
    whole_s: FloatArray
    """(columns, cells) when they are over if the round stays open"""

    def next_s(self, start_s: FloatArray, from_s: FloatArray) -> FloatArray:
        """(columns,) the first instant from `from_s` on at which a call is to be invoked again; inf: none."""
        fails_s = start_s[:, np.newaxis, np.newaxis] + self.chains.fails_s[:, :-1]
        due = self.asked[:, :, np.newaxis] & (fails_s >= from_s[:, np.newaxis, np.newaxis])
        found: FloatArray = np.where(due, fails_s, np.inf).min(axis=(1, 2), initial=np.inf)
        return found


class Timeline:
    """The clock of each column (parameter set). Per round: `dispatch`, then `close`."""

    def __init__(self, setting: Setting, workers: int, columns: int, *, watch: bool = True) -> None:
        """`watch`: keep account of what is in flight even where nothing depends on it."""
        cap = in_flight_cap(setting)
        concurrency = setting.limits.concurrency
        self._workers = workers
        self._cap = None if cap is None else math.floor(cap * workers)
        self._concurrency = concurrency
        self._room = None if concurrency is None else concurrency - workers
        """what may still be running when a round is dispatched"""
        self._running = InFlight(columns) if watch or limited(setting) else None
        self.start_s: FloatArray = np.zeros(columns)
        """(columns,) dispatch of the current round"""
        self.total_s: FloatArray = np.zeros(columns)
        """(columns,) when the last round closed; inf: one never does"""
        self.stopped: BoolArray = np.zeros(columns, dtype=np.bool_)
        """(columns,) does some round never close, since all attempts of a worker fail?"""
        self.again_s: FloatArray = np.zeros(columns)
        """(columns,) seconds billed for workers whose first attempt failed, beyond one load's shift for each"""
        self.again_calls: IntArray = np.zeros(columns, dtype=np.int64)
        """(columns,) invocations beyond the first of each worker and round"""
        self._failing: _Failing | None = None
        self._durations_s: list[FloatArray] = []

    def dispatch(
        self, delays_s: FloatArray, asked: BoolArray, chains: Chains | None = None, shift_s: FloatArray | None = None
    ) -> FloatArray:
        """Sends the current round; returns when every worker that is `asked` (columns, n) arrives, inf for the others.

        `chains`: what workers do whose first attempt fails; `shift_s`: (columns,) what the load adds to their answers.
        """
        at_s: FloatArray = np.where(asked, self.start_s[:, np.newaxis] + delays_s, np.inf)
        running_s = np.where(asked, at_s, -np.inf)
        self._failing = None
        if chains is not None and shift_s is not None:
            whole = chains.over(self.start_s, shift_s)
            self._failing = _Failing(chains, shift_s, asked[:, chains.workers], whole.at_s)
            running_s[:, chains.workers] = np.where(self._failing.asked, whole.at_s, -np.inf)
        if self._running is not None:
            self._running.drop(self.start_s)
            self._running.add(running_s)
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
        capped_s = np.maximum(ready_s, self._running.at_most(self._cap))
        if self._failing is None:
            return capped_s
        # A call that is found to have failed leaves room for one before it is invoked again: the round may close then.
        nearly_s = np.maximum(ready_s, self._running.at_most(self._cap + 1))
        return np.minimum(capped_s, self._failing.next_s(self.start_s, nearly_s))

    def close(self, end_s: FloatArray, playing: BoolArray) -> BoolArray | None:
        """The round closes at `end_s`. Columns that are not `playing` have done with the run: their clock stands.

        Returns: (columns, n) whose answers will not come, since nothing is invoked again now; None: none.
        """
        self.stopped |= playing & np.isinf(end_s)
        end_s = np.where(playing & ~self.stopped, end_s, self.start_s)
        lost = None if self._failing is None else self._settle(self._failing, end_s)
        self._durations_s.append(end_s - self.start_s)
        self.total_s = np.where(self.stopped, np.inf, np.where(playing, end_s, self.total_s))
        following_s = end_s
        if self._room is not None and self._running is not None:
            following_s = np.maximum(end_s, self._running.at_most(self._room))
        self.start_s = np.where(playing, following_s, self.start_s)
        return lost

    def _settle(self, failing: _Failing, end_s: FloatArray) -> BoolArray:
        """What calls that failed have cost, and whose answers the close of the round cuts off."""
        asked = failing.asked
        over = failing.chains.over(self.start_s, failing.shift_s, end_s)
        took_s = over.at_s - self.start_s[:, np.newaxis] - failing.shift_s[:, np.newaxis]
        self.again_s += np.where(asked, took_s, 0.0).sum(axis=1)
        self.again_calls += np.where(asked, over.sent - 1, 0).sum(axis=1)
        if self._running is not None:
            self._running.replace(np.where(asked, failing.whole_s, 0.0), np.where(asked, over.at_s, 0.0))
        lost = np.zeros((end_s.size, self._workers), dtype=np.bool_)
        lost[:, failing.chains.workers] = over.cut & asked
        return lost

    @property
    def durations_s(self) -> FloatArray:
        """(rounds, columns) from dispatch to close."""
        return np.array(self._durations_s)

    @property
    def peak(self) -> IntArray | None:
        """(columns,) most invocations in flight at any instant; None where no account was kept."""
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
