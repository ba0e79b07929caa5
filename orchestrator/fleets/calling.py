"""What every fleet that invokes a real function shares: which function, how patient, how fast to grow.

Pure, but for the random jitter: the instant is always passed in. Read next: `lambda_fleet.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from gradmux.lambda_worker.contract import MAX_EVENT_BYTES, MAX_REQUEST_BYTES, Request, encode_request
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.refusals import Verdict
from gradmux.orchestrator.ports import Arrival, Fleet, Invocation, Outcome

SILENCE_S = 120.0
"""An answer may take so much longer than the function's timeout: cold starts, and the emulator's queue for a core."""
CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Function:
    """The Lambda function that workers are."""

    name: str
    """name, or ARN in any of its forms"""
    qualifier: str | None = None
    """version or alias"""
    timeout_s: float = 60.0
    """its own timeout"""

    def path(self) -> str:
        """Of its Invoke URL, percent-encoded as botocore does it."""
        path = f"/2015-03-31/functions/{quote(self.name, safe='-._~')}/invocations"
        return f"{path}?Qualifier={quote(self.qualifier, safe='-._~')}" if self.qualifier else path


class MakesRequests(Protocol):
    """What a fleet asks for the content of its calls: `training.requests.RequestBuilder`."""

    def build(self, call: Invocation) -> Request: ...
    def warm(self, call: Invocation) -> Request: ...


class WorkerFleet(Fleet, Protocol):
    """A `ports.Fleet` with all that a run asks of workers besides its rounds."""

    @property
    def cpus(self) -> tuple[str, ...]:
        """Models of the processors that have answered so far."""
        ...

    def check(self, connections: int = 1) -> None:
        """Whether it could invoke, before anything is invoked. Raises: PreflightError that says why not.

        Whatever takes time to open is opened, for so many calls at once.
        """
        ...

    def warm(self, invocations: Sequence[Invocation]) -> Sequence[Arrival]:
        """Has workers started, models and data read, as these invocations will need them; returns when all are."""
        ...

    def run(self, calls: Sequence[tuple[Invocation, Request]]) -> Sequence[Arrival]:
        """Has these requests answered, beside whatever is in flight; what came of each, in this order."""
        ...


def request_body(request: Request) -> bytes:
    """The JSON of a request. Raises ConfigError when AWS would not take it."""
    body, most = encode_request(request), MAX_EVENT_BYTES if request.reply.post else MAX_REQUEST_BYTES
    if len(body) > most:
        raise ConfigError(
            f"round {request.round}, worker {request.worker}: its request has {len(body)} bytes, AWS takes "
            f"{most}: use more workers, a smaller batch, or weights through S3"
        )
    return body


# --- repeating calls that did not run ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call that did not run is repeated before it counts as throttled or unreachable."""

    throttled_s: float = 60.0
    """of 429s"""
    unavailable_s: float = 60.0
    """of 5xx, refused connections and expired credentials"""
    first_wait_s: float = 0.1
    """longest first wait; it doubles"""
    longest_wait_s: float = 2.0


IMPATIENT = Patience(throttled_s=3.0, unavailable_s=3.0)
"""Of checks that somebody waits for."""
OUTCOMES = {
    Verdict.THROTTLED: Outcome.THROTTLED,
    Verdict.UNAVAILABLE: Outcome.UNREACHABLE,
    Verdict.EXPIRED: Outcome.UNREACHABLE,
    Verdict.REFUSED: Outcome.UNREACHABLE,
    Verdict.LOST: Outcome.UNREACHABLE,
    Verdict.SILENT: Outcome.TIMED_OUT,
}
"""What a call has come to that is not repeated (any more)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """What follows on a refusal."""

    wait_s: float
    again: bool
    """is the call made again after that?"""


@dataclass(slots=True)
class Backoff:
    """The waits of one call: exponential, with full jitter, so that refused calls do not come back all at once."""

    patience: Patience
    start_s: float
    randomness: random.Random = field(default_factory=random.Random)
    repeats: int = 0

    def wait_s(self, verdict: Verdict, now_s: float) -> float | None:
        """How long to wait before the call is repeated; None: not again."""
        left_s = self._left_s(verdict, now_s)
        if left_s is None or left_s <= 0:
            return None
        longest = min(self.patience.longest_wait_s, self.patience.first_wait_s * 2**self.repeats)
        self.repeats += 1
        return self.randomness.uniform(0.0, longest)

    def pause(self, verdict: Verdict, now_s: float, asked_s: float) -> Pause:
        """The same where the server wants to be left alone for `asked_s` (Retry-After).

        When patience ends before that, it is waited out and nothing is sent: a call that gave up at once would come
        back as another attempt, and sooner than it was asked to.
        """
        left_s, wait_s = self._left_s(verdict, now_s), self.wait_s(verdict, now_s)
        if left_s is None or wait_s is None:
            return Pause(0.0, again=False)
        if asked_s > left_s:
            return Pause(left_s, again=False)
        return Pause(asked_s + wait_s, again=True)

    def _left_s(self, verdict: Verdict, now_s: float) -> float | None:
        """What is left of the patience with such answers; None where a call is not repeated."""
        limits = {
            Verdict.THROTTLED: self.patience.throttled_s,
            Verdict.UNAVAILABLE: self.patience.unavailable_s,
            Verdict.EXPIRED: self.patience.unavailable_s,
        }
        return self.start_s + limits[verdict] - now_s if verdict in limits else None


# --- growing -----------------------------------------------------------------------------------------------------


ROUNDING = 1e-9
"""A wait just over has earned its token, whatever rounding made of it."""


class Ramp:
    """Holds calls back that AWS would refuse: a function grows by 1,000 sandboxes in 10 s, and not faster.

    Only new heights count: calls that fit into what was in flight before find sandboxes waiting.
    """

    def __init__(self, burst: int = 1000, per_s: float = 100.0) -> None:
        self._burst, self._per_s = burst, per_s
        self._peak = 0
        self._tokens, self._at_s = float(burst), 0.0

    def wait_s(self, in_flight: int, now_s: float) -> float:
        """How long a call must wait that would be number `in_flight`; 0: it may go, and is counted."""
        if in_flight <= self._peak:
            return 0.0
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._tokens < 1.0 - ROUNDING:
            return (1.0 - self._tokens) / self._per_s
        self._tokens -= 1.0
        self._peak = in_flight
        return 0.0
