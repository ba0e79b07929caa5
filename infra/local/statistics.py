"""What the emulator has done so far, in numbers and as a list of invocations.

Knows nothing of how. Filled by `invocation.py`, read through `admin.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

JOURNAL_LENGTH = 100_000


JOURNAL_FIELDS = (
    "request_id",
    "round",  # None, like worker and attempt, when the event is no gradient request
    "worker",
    "attempt",
    "sandbox",  # its number; None when nothing ran
    "cold",
    "event",  # asynchronous
    "accepted_s",  # seconds since the emulator started
    "answered_s",
    "billed_ms",
    "outcome",  # "ok", or the error's name
)

JournalEntry = tuple[str | int | float | None, ...]
"""One POST that was let in or refused; a tuple, because it is written for every call and seldom read"""


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
    journal: deque[JournalEntry] = field(default_factory=lambda: deque(maxlen=JOURNAL_LENGTH))

    def enter(self) -> None:
        """One more call in flight."""
        self.invocations += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def leave(self) -> None:
        """One call less in flight."""
        self.in_flight -= 1

    def journal_to_json(self) -> list[dict[str, Any]]:
        """The journal as objects, oldest first."""
        return [dict(zip(JOURNAL_FIELDS, entry, strict=True)) for entry in self.journal]

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
