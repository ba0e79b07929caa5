"""What a job needs of the place where it runs.

Pure. Read next: `examine.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

LEAST_SHARE = 884
"""MB: half a processor. The import of torch takes 1.3 s of a whole one where it was measured."""


@dataclass(frozen=True, slots=True)
class Needs:
    """One job, or just a function and a bucket."""

    function: str
    bucket: str
    workers: int | None = None
    """n; None when that is not known"""
    concurrency: int | None = None
    """C, most invocations in flight"""
    timeout_s: float | None = None
    """after which the client takes a worker for dead"""
    model_bytes: int | None = None
    """parameters and buffers of the largest model"""
    local: bool = False
    """the emulator: nothing may lead to AWS"""
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    """of this machine: functions travel as its bytecode"""
