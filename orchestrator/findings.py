"""One line of `gradmux doctor`: what was looked at, how it is, what to do.

Pure. Made by backends (`Backend.examine`) and `doctor.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

PREFLIGHT = 3
QUOTA = 4


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """a job may run, but slower, dearer or less safely"""
    FAILURE = "failure"
    """no job can run"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    says: str
    do: str = ""
    """what to do about it; empty when all is well"""
    quota: bool = False
    """it is a matter of what the account is allowed"""


def well(check: str, says: str) -> Finding:
    return Finding(check, Level.OK, says)


def warning(check: str, says: str, do: str) -> Finding:
    return Finding(check, Level.WARNING, says, do)


def failure(check: str, says: str, do: str, *, quota: bool = False) -> Finding:
    return Finding(check, Level.FAILURE, says, do, quota)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when a job can run, 4 when nothing but the account's limits is in its way, else 3."""
    failures = [each for each in findings if each.level is Level.FAILURE]
    if not failures:
        return 0
    return QUOTA if all(each.quota for each in failures) else PREFLIGHT
