"""What the emulator has done so far, in numbers and as a list of invocations.

Knows nothing of how. Filled by `invocation.py`, read through `admin.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

JOURNAL_LENGTH = 100_000


@dataclass(frozen=True, slots=True)
class Invocation:
    """One POST that was accepted or refused."""

    request_id: str
    round: int | None
    """None, with worker, attempt, when the event is no gradient request"""
    worker: int | None
    attempt: int | None
    sandbox: int | None
    """number of the sandbox; None when nothing ran"""
    cold: bool
    event: bool
    """asynchronous"""
    accepted_s: float
    """seconds since the emulator started"""
    answered_s: float
    """seconds since the emulator started"""
    billed_ms: int
    outcome: str
    """"ok", or the error's name"""


@dataclass(slots=True)
class Statistics:
    """Counters since the start."""

    invocations: int = 0
    """calls that were let in: not the refused ones"""
    cold_starts: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    billed_ms: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """by error name; 429s are TooManyRequestsException"""
    errors: Counter[str] = field(default_factory=Counter)
    """function errors by name"""
    faults: Counter[str] = field(default_factory=Counter)
    """injected ones by kind"""
    journal: deque[Invocation] = field(default_factory=lambda: deque(maxlen=JOURNAL_LENGTH))

    def enter(self) -> None:
        """One more call in flight."""
        self.invocations += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def leave(self) -> None:
        """One call less in flight."""
        self.in_flight -= 1

    def to_json(self) -> dict[str, Any]:
        """The counters, without the journal."""
        return {
            "invocations": self.invocations,
            "cold_starts": self.cold_starts,
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak_in_flight,
            "billed_ms": self.billed_ms,
            "refused": dict(self.refused),
            "errors": dict(self.errors),
            "faults": dict(self.faults),
        }
