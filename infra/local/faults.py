"""Which invocation goes wrong, and how: by schedule, or by rate and seed. The same plan always hurts the same calls.

Pure: decides, and does nothing; `invocation.py` acts it out. Delays are in `injection.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.seeded import uniform


class FaultKind(Enum):
    """What happens to the invocation, in the words of the `--faults` option."""

    CRASH = "crash"
    """the worker process dies by SIGSEGV before it answers: Runtime.ExitError"""
    ERROR = "error"
    """the handler raises: FunctionError Unhandled"""
    OOM = "oom"
    """the kernel kills the worker for its memory: Runtime.OutOfMemory"""
    TIMEOUT = "timeout"
    """no answer until the function's timeout: Sandbox.Timedout"""
    INIT = "init"
    """the sandbox fails to start: Runtime.ImportModuleError"""
    THROTTLE = "throttle"
    """429 TooManyRequestsException, nothing runs; the same call may be let in when it is repeated"""
    SERVICE = "500"
    """500 ServiceException, nothing runs"""
    UNAVAILABLE = "503"
    """503 ServiceUnavailableException, nothing runs"""
    TRUNCATE = "truncate"
    """the handler runs; the connection ends in the middle of its reply"""
    CORRUPT = "corrupt"
    """the handler runs; one character of its reply is another one"""
    DUPLICATE = "duplicate"
    """an Event invocation is delivered twice"""
    EXPIRED = "expired"
    """403 ExpiredTokenException, nothing runs: the caller's credentials are too old"""
    STALE = "stale"
    """the handler runs; its reply is that of another life of the run (another epoch)"""
    SLOW_DOWN = "slowdown"
    """S3, of all requests: 503 SlowDown"""
    LOST = "lost"
    """S3, of all reads of a snapshot of weights: it is not there any more"""

    @property
    def of_s3(self) -> bool:
        """Does it hurt requests to S3, and not calls of the function?"""
        return self in (FaultKind.SLOW_DOWN, FaultKind.LOST)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One fault at one place."""

    round: int
    worker: int
    kind: FaultKind
    attempt: int = 1
    """from 1"""


@dataclass(frozen=True, slots=True)
class FaultRate:
    """A share of all invocations that fail in this way."""

    kind: FaultKind
    rate: float
    """probability, 0 to 1"""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of a run; deterministic in (seed, round, worker, attempt)."""

    rates: tuple[FaultRate, ...] = ()
    schedule: tuple[ScheduledFault, ...] = ()
    """comes before the rates"""
    seed: int = 0

    def __post_init__(self) -> None:
        calls = sum(fault.rate for fault in self.rates if not fault.kind.of_s3)
        if any(not 0 <= fault.rate <= 1 for fault in self.rates) or calls > 1 + 1e-9:
            raise EmulatorError("fault rates must be from 0 to 1, and at most 1 together")

    def rate(self, kind: FaultKind) -> float:
        """The share that suffers this fault."""
        return sum(fault.rate for fault in self.rates if fault.kind is kind)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The plan that `to_json` wrote."""
        rates = tuple(FaultRate(FaultKind(kind), rate) for kind, rate in fields["rates"])
        schedule = tuple(ScheduledFault(at[0], at[1], FaultKind(at[3]), at[2]) for at in fields["schedule"])
        return cls(rates, schedule, fields["seed"])

    def to_json(self) -> dict[str, Any]:
        """Plain lists: rates as (kind, rate), schedule as (round, worker, attempt, kind)."""
        return {
            "rates": [[fault.kind.value, fault.rate] for fault in self.rates],
            "schedule": [[at.round, at.worker, at.attempt, at.kind.value] for at in self.schedule],
            "seed": self.seed,
        }

    def decide(self, round: int, worker: int, attempt: int, refusals: int = 0) -> FaultKind | None:
        """The fault of this invocation, or None.

        `refusals`: how often a fault has refused this very attempt already. A scheduled one does so once, rates draw
        anew: on AWS, too, a call that was throttled gets in when it is repeated.
        """
        for fault in self.schedule:
            if (fault.round, fault.worker, fault.attempt) == (round, worker, attempt) and not refusals:
                return fault.kind
        if not self.rates:
            return None
        left = uniform(self.seed, f"fault{refusals or ''}", round, worker, attempt)
        for rate in self.rates:
            left -= 0.0 if rate.kind.of_s3 else rate.rate
            if left < 0:
                return rate.kind
        return None


NO_FAULTS = FaultPlan()
