"""What a job needs of the place where it runs, and how much memory a model takes in a worker.

Pure. Read next: `examine.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

MB = 2**20
WORKER_MB = 260
"""Resident after one small task, with torch 2.13: 229 MB after the import, 251 with a model of 1 MB."""
OVERSHOT = 1.14
"""By what factor `memory_mb` was above what models took, at most: beyond it a model cannot fit."""
COPIES = 5
"""Of a model's parameters while it answers: module, gradient, coded sum, buffer, its encoding."""
SNAPSHOTS_MB = 256
"""The worker's cache of snapshots (`gradmux.lambda_worker.sandbox`)."""
SNAPSHOTS = 7
"""Kept beside the one in use."""
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


def memory_mb(model_bytes: int) -> int:
    """What a worker takes at most for a model of this size, without the activations of its batch. MB.

    Held against models of 1 to 113 MB after nine rounds: 2 to 14 % above what each of them took.
    """
    model_mb = model_bytes / MB
    return round(WORKER_MB + COPIES * model_mb + min(SNAPSHOTS_MB, SNAPSHOTS * model_mb))
