"""A place whose workers answer Lambda's Invoke API and whose store speaks S3: AWS itself, or the emulator.

Knows neither an account nor processes. Read next: `orchestrator/fleets/lambda_fleet.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import botocore.session

from gradmux.lambda_worker.contract import MAX_EVENT_BYTES, MAX_REQUEST_BYTES
from gradmux.orchestrator.aws import resolve_endpoint
from gradmux.orchestrator.backends import Billed, FleetPlan, Limits, PlaceNote
from gradmux.orchestrator.fleets.calling import Function, Patience
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.store import S3Store

LIMITS = Limits(memory_mb=10_240, timeout_s=900.0, request_bytes=MAX_REQUEST_BYTES, event_bytes=MAX_EVENT_BYTES)
"""Lambda's own, which the emulator shares."""
CLIENT_PATIENCE_S = 20.0
"""of the S3 client itself; longer trouble is waited out by the run"""
UNKNOWN = Billed()
REACH_S = 5.0
"""how long another process's store is tried"""
LOOPBACK = "http://127.0.0.1:"
"""Emulators come and go, on any port; all of them share this machine."""


@dataclass(frozen=True, slots=True)
class LambdaPlace:
    """`backends.Place` over one function and one bucket."""

    backend: str
    session: Callable[[], botocore.session.Session]
    """a new one, with the credentials as they are now"""
    bucket: str
    function: str
    timeout_s: float
    lambda_url: str | None = None
    """None: as AWS's own tools find it"""
    s3_url: str | None = None
    """None: as AWS's own tools find it"""
    billed: Billed = UNKNOWN
    ended: Callable[[], str] = str
    access: tuple[str, ...] = field(default=(), repr=False)
    """key id and secret that are good for this place alone; empty: the user's own credentials, which are not noted"""

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def pool(self) -> str:
        url = self._endpoint("lambda", self.lambda_url)
        return "local" if url.startswith(LOOPBACK) else re.sub(r"[^A-Za-z0-9.-]+", "_", url)

    def describe(self) -> str:
        endpoints = self._endpoint("lambda", self.lambda_url), self._endpoint("s3", self.s3_url)
        return f"Lambda {self.function} at {endpoints[0]}, S3 {self.bucket} at {endpoints[1]}"

    def note(self) -> PlaceNote:
        own = {name: getattr(self, name) for name in ("bucket", "function", "lambda_url", "s3_url")}
        access = {"access": list(self.access)} if self.access else {}
        return PlaceNote(self.backend, self.timeout_s, self.billed, own | access)

    def store(self) -> S3Store:
        return S3Store(self.bucket, endpoint_url=self.s3_url, session=self.session(), patience_s=CLIENT_PATIENCE_S)

    def fleet(self, plan: FleetPlan) -> LambdaFleet:
        return LambdaFleet(
            Function(self.function, timeout_s=plan.timeout_s),
            plan.requests,
            plan.store,
            run=plan.run,
            session=self.session(),
            endpoint_url=self.lambda_url,
            patience=Patience(throttled_s=plan.patience_s, unavailable_s=plan.patience_s),
            shelf=plan.shelf,
        )

    def _endpoint(self, service: str, url: str | None) -> str:
        return resolve_endpoint(self.session(), service, url).url


def reopened(note: PlaceNote, session: botocore.session.Session) -> S3Store:
    """The bucket that a place has noted."""
    return S3Store(note.own["bucket"], endpoint_url=note.own.get("s3_url"), session=session, patience_s=REACH_S)
