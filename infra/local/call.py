"""One invocation on its way through the emulator: what was asked, and what the sandbox did.

Data only. Read next: `invocation.py`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from gradmux.infra.local.answers import Answer
from gradmux.infra.local.event import EventFields
from gradmux.infra.local.faults import FaultKind


@dataclass(slots=True)
class Call:
    """One POST, and what becomes of it."""

    payload: bytes | bytearray
    arn: bytes
    version: str
    client_context: bytes = b""
    """JSON"""
    tail: bool = False
    """X-Amz-Log-Type: Tail"""
    event: bool = False
    """InvocationType Event"""
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    accepted: float = 0.0
    """loop time, seconds"""
    fields: EventFields | None = None
    """None when the event is no gradient request"""
    fault: FaultKind | None = None
    log_result: str | None = None
    """base64, once answered"""


@dataclass(slots=True)
class Run:
    """What happened in the sandbox."""

    answer: Answer
    duration_s: float = 0.0
    """from the grant of the slot to the answer"""
    status: str | None = None
    """Lambda's name of a failure outside the handler"""
