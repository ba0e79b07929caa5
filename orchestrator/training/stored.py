"""Results that stay in the store, because workers will sum them there: what the client knows of each, and what is left.

Knows neither fleets nor how sums are made. Filled by `fleets/replies.py`, read by `cloud_sum.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.buffers import pieced_crc
from gradmux.lambda_worker.contract import Result
from gradmux.orchestrator.ports import Invocation


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One result whose gradient was not fetched."""

    key: str
    """S3 key of its bytes"""
    size: int
    """of all of it, bytes"""
    offset: int
    """of the gradient, bytes"""
    scale: float
    """of a float16 gradient"""
    sums: NDArray[np.float64]
    """(k,) as in `gradients.CodedResult`"""
    buffers: int = 0
    """b, elements of the section that ends at `offset`"""
    crc: int | None = None
    """CRC32 of all of it, as its worker told; None: not told"""
    call: Invocation | None = None
    """what it answers, so that it can be asked for once more"""
    slot: int = 0
    """of that call"""

    @classmethod
    def of(cls, result: Result, call: Invocation) -> StoredResult:
        """An ok result with a key."""
        assert result.key is not None
        return cls(
            result.key,
            result.size,
            result.offset,
            result.scale,
            np.array(result.sums or (), dtype=np.float64),
            result.buffers,
            result.crc,
            call,
            result.slot,
        )

    def is_intact(self, dtype: str, buffers: NDArray[np.float64], pieces: Iterable[tuple[int, int]]) -> bool:
        """Is what was read of it what its worker put there? `pieces` of the gradient: (CRC32, bytes), in order."""
        return self.crc is None or self.crc == pieced_crc(dtype, self.scale, self.sums, buffers, pieces)


class Shelf:
    """Names the objects of jobs, so that those of no more use can be removed. Safe to share between threads."""

    def __init__(self) -> None:
        self._keys: dict[int, list[str]] = {}
        self._over: set[int] = set()
        """jobs that need nothing any more"""
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Jobs are counted from 0 again; nothing is in flight."""
        with self._lock:
            self._over.clear()

    def note(self, job: int, key: str) -> None:
        """An object of `job` is in the store."""
        with self._lock:
            self._keys.setdefault(job, []).append(key)

    def finish(self, job: int) -> list[str]:
        """The job needs nothing any more: all objects that can be removed, latecomers of finished jobs included."""
        with self._lock:
            self._over.add(job)
            over = [job for job in self._keys if job in self._over]
            return list(dict.fromkeys(key for job in over for key in self._keys.pop(job)))
