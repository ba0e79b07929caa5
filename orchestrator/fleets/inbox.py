"""What has come in: arrivals put by the threads of a real fleet, taken in order by the one thread that runs the loop.

Owns the clock of a real fleet: seconds since the inbox was made, by the machine's monotonic clock. Knows nothing of
HTTP. Read next: `lambda_fleet.py`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace

from orchestrator.ports import Arrival


class Inbox:
    """Arrivals, stamped in the order in which they were put."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._changed = threading.Condition()
        self._arrivals: deque[Arrival] = deque()
        self._open = 0
        self._failure: Exception | None = None

    def now(self) -> float:
        """Seconds since this inbox was made."""
        return time.monotonic() - self._start_s

    @property
    def in_flight(self) -> int:
        """Invocations whose final arrival was not put yet."""
        return self._open

    def expect(self, invocations: int) -> float:
        """So many more final arrivals will come. Returns the instant."""
        with self._changed:
            self._open += invocations
            return self.now()

    def put(self, *arrivals: Arrival) -> None:
        """Stamps them with the instant, and wakes who waits."""
        with self._changed:
            at_s = self.now()
            self._arrivals.extend([replace(arrival, at_s=at_s) for arrival in arrivals])
            self._open -= sum(arrival.final for arrival in arrivals)
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """No more will come: whoever takes next gets `error` raised."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def take(self, until_s: float | None) -> Arrival | None:
        """`Fleet.next`."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._arrivals:
                    due = until_s is None or self._arrivals[0].at_s <= until_s
                    return self._arrivals.popleft() if due else None
                left_s = None if until_s is None else until_s - self.now()
                if (left_s is None and self._open == 0) or (left_s is not None and left_s <= 0):
                    return None
                self._changed.wait(left_s)

    def abandon(self) -> None:
        """Forgets what has come and what is still expected."""
        with self._changed:
            self._arrivals.clear()
            self._open = 0
            self._changed.notify_all()
