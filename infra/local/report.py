"""The START, END and REPORT lines that Lambda wraps around a function's log, and the 4 KB tail of it all.

Pure. Read next: `invocation.py`.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass

TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """What one invocation used."""

    request_id: str
    version: str
    duration_s: float
    """from the grant of the run slot to the answer, injected delay included; real seconds"""
    memory_mb: int
    max_memory_mb: int
    init_s: float | None = None
    """on a cold start"""
    status: str | None = None
    """error name or "timeout", when the invocation failed outside the handler"""

    @property
    def billed_ms(self) -> int:
        """Duration, rounded up to the next millisecond; the start of a sandbox is billed since August 2025."""
        return math.ceil(round(1000 * (self.duration_s + (self.init_s or 0.0)), 6))

    def lines(self) -> str:
        """END and REPORT, as CloudWatch shows them."""
        parts = [
            f"REPORT RequestId: {self.request_id}",
            f"Duration: {1000 * self.duration_s:.2f} ms",
            f"Billed Duration: {self.billed_ms} ms",
            f"Memory Size: {self.memory_mb} MB",
            f"Max Memory Used: {self.max_memory_mb} MB",
        ]
        if self.init_s is not None:
            parts.append(f"Init Duration: {1000 * self.init_s:.2f} ms")
        if self.status:
            named = "Status: timeout" if self.status == "timeout" else f"Status: error\tError Type: {self.status}"
            parts.append(named)
        return f"END RequestId: {self.request_id}\n" + "\t".join(parts) + "\n"

    def tail(self, log: bytes) -> str:
        """The last 4 KB of START, the function's own log, END and REPORT; base64, for X-Amz-Log-Result."""
        start = f"START RequestId: {self.request_id} Version: {self.version}\n".encode()
        if log and not log.endswith(b"\n"):
            log += b"\n"
        return base64.b64encode((start + log + self.lines().encode())[-TAIL_BYTES:]).decode()
