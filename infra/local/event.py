"""The few fields of an event that injection and placement need, read without parsing the megabytes behind them.

Knows nothing of the rest of the contract. Read next: `invocation.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import orjson

# In valid JSON a quote inside a string is escaped, so `,"round":` outside nested values is always a top-level key.
FIELD = re.compile(rb'[{,]\s*"(op|round|worker|attempt|load)"\s*:\s*("[^"\\]*"|-?[0-9.eE+-]+)\s*(?=[,}])')
NESTED = re.compile(rb"[{\[]")
HEAD_BYTES = 1024
EARLY = re.compile(rb'"early":\s*true')


@dataclass(frozen=True, slots=True)
class EventFields:
    """Where an invocation stands in a run."""

    round: int
    worker: int
    attempt: int = 1
    """from 1"""
    load: float = 0.0
    """fraction of one batch"""
    early_load: float | None = None
    """what part of `load` is done when the first message goes to S3, before the answer; None: all is in the answer"""


def event_fields(payload: bytes | bytearray) -> EventFields | None:
    """The fields of a coded-gradient request; None for any other event, which gets no delay, fault or affinity.

    Requests to warm up or to sum results are such events too: they stand in no round.
    """
    nested = NESTED.search(payload, payload.find(b"{") + 1, HEAD_BYTES)
    end = nested.start() if nested else min(len(payload), HEAD_BYTES)
    found: dict[str, object] = {key.decode(): orjson.loads(value) for key, value in FIELD.findall(payload, 0, end)}
    if len(found) < 5 and len(payload) > end:
        found = _parsed(payload)
    fields = _checked(found)
    if fields is not None and EARLY.search(payload):
        return replace(fields, early_load=fields.load * first_share(_parsed(payload)))
    return fields


def first_share(event: dict[str, object]) -> float:
    """What part of an event's passes its first message covers, in a request of the contract; 1 in any other."""
    tasks = event.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        return 1.0
    try:
        shares = [(task.get("message", 0), _share(task)) for task in tasks]
        first = min(message for message, _ in shares)
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError):
        return 1.0
    whole = sum(share for _, share in shares)
    return sum(share for message, share in shares if message == first) / whole if whole else 1.0


def _share(task: dict[str, Any]) -> float:
    """What part of its batch a task covers: passes, of P."""
    return float(sum(end - first for first, end, *_ in task.get("terms", ())) / task["passes"])


def _parsed(payload: bytes | bytearray) -> dict[str, object]:
    """The slow way, for events that do not begin with all of these fields."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def _checked(found: dict[str, object]) -> EventFields | None:
    round, worker, attempt, load = (found.get(name) for name in ("round", "worker", "attempt", "load"))
    if not isinstance(round, int) or not isinstance(worker, int) or found.get("op") in ("warm", "reduce"):
        return None
    return EventFields(
        round=max(0, round),
        worker=max(0, worker),
        attempt=attempt if isinstance(attempt, int) else 1,
        load=float(load) if isinstance(load, int | float) else 0.0,
    )
