"""The few fields of an event that injection and placement need, read without parsing the megabytes behind them.

Knows nothing of the rest of the contract. Read next: `invocation.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

# In valid JSON a quote inside a string is escaped, so `,"round":` outside nested values is always a top-level key.
FIELD = re.compile(rb'[{,]\s*"(op|round|worker|attempt|load)"\s*:\s*("[^"\\]*"|-?[0-9.eE+-]+)\s*(?=[,}])')
NESTED = re.compile(rb"[{\[]")
HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class EventFields:
    """Where an invocation stands in a run."""

    round: int
    worker: int
    attempt: int = 1
    """from 1"""
    load: float = 0.0
    """fraction of one batch"""


def event_fields(payload: bytes | bytearray) -> EventFields | None:
    """The fields of a coded-gradient request; None for any other event, which gets no delay, fault or affinity.

    A "warm" request is such an event too: it stands in no round.
    """
    nested = NESTED.search(payload, payload.find(b"{") + 1, HEAD_BYTES)
    end = nested.start() if nested else min(len(payload), HEAD_BYTES)
    found: dict[str, object] = {key.decode(): orjson.loads(value) for key, value in FIELD.findall(payload, 0, end)}
    if len(found) < 5 and len(payload) > end:
        found = _parsed(payload)
    return _checked(found)


def _parsed(payload: bytes | bytearray) -> dict[str, object]:
    """The slow way, for events that do not begin with all of these fields."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def _checked(found: dict[str, object]) -> EventFields | None:
    round, worker, attempt, load = (found.get(name) for name in ("round", "worker", "attempt", "load"))
    if not isinstance(round, int) or not isinstance(worker, int) or found.get("op") == "warm":
        return None
    return EventFields(
        round=max(0, round),
        worker=max(0, worker),
        attempt=attempt if isinstance(attempt, int) else 1,
        load=float(load) if isinstance(load, int | float) else 0.0,
    )
