"""Does the store answer at all? One small question at a time, asked beside whatever is under way.

Workers read from the store, too, and write there: when it is stopped, they hang, and the client may ask nothing by
itself that would show it. A store that is slow answers small questions; one that was stopped, or is behind a network
that drops everything, does not. Knows no store. Used by `patience.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

EVERY_S = 10.0
"""between an answer and the next question, while somebody wants to know, at most"""


class Pulse:
    """Asks as long as it is asked itself; safe to share between threads."""

    def __init__(
        self,
        question: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
        begin: Callable[[Callable[[], None]], None] | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        """`question` comes back, or raises, when there was an answer, of whatever kind. `begin` runs it elsewhere."""
        self._every_s = every_s
        self._question, self._clock, self._begin = question, clock, begin or _in_a_thread
        self._lock = threading.Lock()
        self._asked_s: float | None = None
        self._answered_s = -every_s

    def silent_s(self) -> float:
        """For how long the question that is out has not been answered; 0 when none is."""
        with self._lock:
            now_s = self._clock()
            if self._asked_s is not None:
                return now_s - self._asked_s
            if now_s - self._answered_s < self._every_s:
                return 0.0
            self._asked_s = now_s
        self._begin(self._ask)
        return 0.0

    def _ask(self) -> None:
        with suppress(Exception):  # a refusal is an answer; those who need more will hear of it themselves
            self._question()
        with self._lock:
            self._asked_s, self._answered_s = None, self._clock()


def _in_a_thread(ask: Callable[[], None]) -> None:
    threading.Thread(target=ask, name="pulse", daemon=True).start()
