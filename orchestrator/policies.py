"""When a round closes and what is sent again: the wait policies and limits, as data.

Knows no scheme and no clock; `rounds.py` acts on these. Source of the mu rule: Krishnan, Ebrahimi, Khisti 2023,
section 4. Read next: `rounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gradmux.orchestrator.closing import Closing
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.asks import Backup

__all__ = ["Backup", "Earliest", "Limits", "Mu", "WaitPolicy", "limits_of", "wait_policy"]


@dataclass(frozen=True, slots=True)
class Earliest:
    """Close as soon as what is due decodes and every other active job can still meet its deadline (the default)."""


@dataclass(frozen=True, slots=True)
class Mu:
    """The papers' rule: who needs more than (1 + mu) times the fastest answer is a straggler.

    When the stragglers leave the scheme's straggler model, the round goes on: `wait_out = "until"` admits arrivals in
    order until the rest conforms; `"all"` waits for all workers, as the published simulator does.
    """

    mu: float = 1.0
    wait_out: Literal["until", "all"] = "until"
    straggler_model: Literal["bursty", "arbitrary", "either"] = "either"

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(
                f"mu is {self.mu}, but must be at least 0 (1.0 waits twice as long as the fastest worker took)"
            )


WaitPolicy: TypeAlias = Earliest | Mu

USUAL_CONCURRENCY = 1000
"""what an AWS account allows in flight unless it asks for more"""


def usual_concurrency(columns: int) -> int:
    """C where none is given: an account's usual limit, or as many as the profile has workers when that is more."""
    return max(USUAL_CONCURRENCY, columns)


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a run."""

    concurrency: int | None = None
    """C, invocations in flight at any instant; None: not bounded"""
    in_flight_cap: float | None = None
    """share of n that may still run when a round closes; None: not bounded"""
    harvest_late: bool = True
    """may a result that comes after its round closed still count, until its job's deadline?"""
    attempts: int = 3
    """tries per worker and round, failures and backups together"""
    deadline_s: float | None = None
    """seconds that a round may take before what is missing is invoked again, and once more before the run gives up"""
    approximate: bool = False
    """after the deadline go on with the least-squares decode instead of stopping"""
    backup: Backup | None = None
    """when missing tasks are invoked again; None: as the scheme asks, if it does"""
    invoke_idle: bool = False
    """simulation only: idle workers are waited for as well, as the published simulator does"""
    split: bool = False
    """may one dispatch be sent in pieces as capacity becomes free?"""

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency is {self.concurrency}, but at least 1 invocation must be allowed in flight")
        if self.in_flight_cap is not None and not 0 <= self.in_flight_cap <= 1:
            raise ConfigError(f"in_flight_cap is {self.in_flight_cap}, but is a share of the workers: 0 to 1")
        if self.attempts < 1:
            raise ConfigError(f"attempts is {self.attempts}, but each task needs at least 1")
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise ConfigError(f"deadline_s is {self.deadline_s}, but must be positive")


def wait_policy(closing: Closing) -> WaitPolicy:
    """When the loop closes a round."""
    if closing.wait == "earliest" or closing.mu is None:
        return Earliest()
    return Mu(mu=closing.mu, wait_out=closing.wait_out, straggler_model=closing.straggler_model or "either")


def limits_of(closing: Closing, concurrency: int | None) -> Limits:
    """What bounds the loop, as far as `closing` says it."""
    return Limits(concurrency=concurrency, in_flight_cap=closing.in_flight_cap, harvest_late=closing.harvest_late)
