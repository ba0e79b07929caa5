"""What calls are taken to take, before any was made: delays, and what they say of a call. Read next: `profile.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.delays.profile import FloatArray


class How(StrEnum):
    """What a delay says of a call."""

    WHOLE = "whole"
    """all that it takes: it was measured with the job's work in it"""
    ADDED = "added"
    """what comes on top of the computation"""
    LONGER = "longer"
    """what it takes at least, computation or not: as an emulator plays it"""


@dataclass(frozen=True, slots=True)
class CallDelays:
    """What calls take."""

    name: str
    how: How
    delays_s: FloatArray
    """(rounds, columns)"""
    slope_s: float = 0.0
    """seconds per unit of load, beyond `base_load`"""
    base_load: float = 0.0
    scales: bool = False
    """true: delays are in proportion to the load instead"""
    failures: Failures = field(default_factory=Failures)
    """when calls without an answer are found"""
