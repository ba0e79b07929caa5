"""What an emulator is to be: the function, its limits, the machine's slots, delays and faults.

Knows nothing of processes. Read next: `emulator.py`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any, Self

from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.faults import NO_FAULTS, FaultPlan
from gradmux.infra.local.injection import NO_DELAYS, DelayPlan


@dataclass(frozen=True, slots=True)
class EmulatorConfig:
    """One Lambda function over forked workers, and one S3."""

    handler: str = "gradmux.lambda_worker.handler:handler"
    """`module:function`"""
    function: str = "gradmux-worker"
    """name of the Lambda function"""
    aliases: tuple[str, ...] = ("live",)
    """names for version 1 of the function"""
    memory_mb: int = 1769
    """a worker whose resident memory grows above this is killed, as Lambda does"""
    timeout_s: float = 60.0
    """seconds; 900 at most"""
    concurrency: int = 1000
    """invocations in flight; the next one is refused with 429"""
    slots: int = 0
    """handlers that compute at the same time; 0 for one on each processor"""
    warm: int = 0
    """sandboxes ready before the first call"""
    preload: tuple[str, ...] = ("torch", "gradmux.lambda_worker.s3:client")
    """what the zygote imports (`module`) and calls (`module:function`), once, before it forks the first worker"""
    python_path: tuple[str, ...] = ()
    """directories where workers look for modules, before the usual ones"""
    variables: tuple[tuple[str, str], ...] = ()
    """the function's environment variables"""
    event_retries: int = 0
    """MaximumRetryAttempts of Event invocations, 0 to 2"""
    event_retry_wait_s: float = 1.0
    """seconds before the first retry, twice that before the second (60 on AWS)"""
    delays: DelayPlan = NO_DELAYS
    faults: FaultPlan = NO_FAULTS
    lambda_port: int = 0
    """0 for any free port"""
    s3_port: int = 0
    """0 for any free port"""
    region: str = "us-east-1"

    def __post_init__(self) -> None:
        module, separator, name = self.handler.partition(":")
        if not (module and separator and name):
            raise EmulatorError(f"handler must be module:function, got {self.handler!r}")
        if not 0 < self.timeout_s <= 900:
            raise EmulatorError(f"timeout_s must be above 0 and at most 900, got {self.timeout_s:g}")
        if not 128 <= self.memory_mb <= 10_240:
            raise EmulatorError(f"memory_mb must be from 128 to 10240, got {self.memory_mb}")
        if self.concurrency < 1 or self.slots < 0 or not 0 <= self.warm <= self.concurrency:
            raise EmulatorError("concurrency must be 1 or more, slots 0 or more, and warm from 0 to concurrency")
        if not 0 <= self.event_retries <= 2:
            raise EmulatorError(f"event_retries must be 0, 1 or 2, got {self.event_retries}")

    @property
    def run_slots(self) -> int:
        """Handlers that compute at the same time."""
        return self.slots or len(os.sched_getaffinity(0))

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dicts, for `from_json` in another process."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "delays": self.delays.to_json(), "faults": self.faults.to_json()}

    def identity(self) -> dict[str, Any]:
        """What cannot be changed while it runs: all but delays and faults. Equal after a way through JSON."""
        fixed = {name: value for name, value in self.to_json().items() if name not in ("delays", "faults")}
        fields: dict[str, Any] = json.loads(json.dumps(fixed))
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The configuration that `to_json` wrote."""
        lists = {name: tuple(fields[name]) for name in ("aliases", "preload", "python_path")}
        variables = tuple((name, value) for name, value in fields["variables"])
        delays, faults = DelayPlan.from_json(fields["delays"]), FaultPlan.from_json(fields["faults"])
        return cls(**{**fields, **lists, "variables": variables, "delays": delays, "faults": faults})
