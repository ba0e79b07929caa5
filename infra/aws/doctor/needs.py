"""What a job needs of the place where it runs.

Pure. Read next: `examine.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Self

from gradmux.orchestrator.backends import Examination

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
    worker_mb: int | None = None
    """what a worker takes for the largest model, without its batch"""
    local: bool = False
    """the emulator: nothing may lead to AWS"""
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    """of this machine: functions travel as its bytecode"""

    @classmethod
    def of(cls, asked: Examination, function: str, bucket: str, *, local: bool = False) -> Self:
        """Those of the job, if there is one; options go before it."""
        if asked.job is None:
            return cls(function, bucket, workers=asked.workers, local=local)
        cluster = asked.job.cluster
        return cls(
            function,
            bucket,
            workers=asked.workers or (None if cluster.workers == "auto" else cluster.workers),
            concurrency=cluster.concurrency,
            timeout_s=cluster.timeout_s,
            worker_mb=asked.worker_mb,
            local=local,
        )
