"""What has come in: arrivals put by the threads of a real fleet, taken in order by the one thread that runs the loop.

Owns the clock of a real fleet: seconds since the inbox was made, by the machine's monotonic clock. Threads meet in one
queue, whose waiting costs a tenth of a condition's. Knows nothing of HTTP. Read next: `lambda_fleet.py`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque

from gradmux.orchestrator.ports import Arrival

APART_S = 1e-9
"""Between stamps of arrivals that come together: who was first is then told by a record's delays, too."""


class Inbox:
    """Arrivals, stamped in the order in which they were put. All but `put` and `fail` is for one thread alone."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._stamping = threading.Lock()
        self._stamped_s = 0.0
        self._queue: queue.SimpleQueue[tuple[Arrival, ...] | Exception] = queue.SimpleQueue()
        self._arrivals: deque[Arrival] = deque()
        """out of the queue, and not taken yet"""
        self._expected = 0
        """final arrivals that are still to come out of the queue"""
        self._failure: Exception | None = None
        self._abandoned = False

    def now(self) -> float:
        """Seconds since this inbox was made."""
        return time.monotonic() - self._start_s

    def expect(self, invocations: int) -> float:
        """So many more final arrivals will come. Returns the instant."""
        self._expected += invocations
        return self.now()

    def put(self, *arrivals: Arrival) -> None:
        """Stamps them with the instant, each later than the one before, and wakes who waits."""
        with self._stamping:  # so that the queue's order is that of the stamps
            self._queue.put(tuple([arrival.stamped(self._stamp()) for arrival in arrivals]))

    def _stamp(self) -> float:
        self._stamped_s = max(self.now(), self._stamped_s + APART_S)
        return self._stamped_s

    def fail(self, error: Exception) -> None:
        """No more will come: whoever takes next gets `error` raised."""
        self._queue.put(error)

    def take(self, until_s: float | None) -> Arrival | None:
        """`Fleet.next`."""
        if self._abandoned:
            return None
        self._look(0.0)
        while True:
            if self._arrivals:
                due = until_s is None or self._arrivals[0].at_s <= until_s
                return self._arrivals.popleft() if due else None
            left_s = None if until_s is None else until_s - self.now()
            if (left_s is None and self._expected == 0) or (left_s is not None and left_s <= 0):
                return None
            self._look(left_s)

    def abandon(self) -> None:
        """Forgets what has come and what is still expected; nothing is taken any more."""
        self._abandoned = True
        self._arrivals.clear()

    def _look(self, wait_s: float | None) -> None:
        """Takes what is in the queue, waiting for it if need be. Raises the failure that was put there."""
        if self._failure is not None:
            raise self._failure
        try:
            came = self._queue.get(timeout=wait_s) if wait_s != 0.0 else self._queue.get_nowait()
            while True:
                if isinstance(came, Exception):
                    self._failure = came
                    raise came
                self._expected -= sum(arrival.final for arrival in came)
                self._arrivals.extend(came)
                came = self._queue.get_nowait()
        except queue.Empty:
            return
