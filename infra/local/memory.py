"""Watches the memory of handlers while they run, as Lambda's sandbox does.

Knows pids and megabytes. Used by `pool.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gradmux.infra.local.processes import resident_mb
from gradmux.infra.local.sandbox import Sandbox

CHECK_S = 0.02


class MemoryWatch:
    """Looks at every running handler 50 times a second; short ones are never looked at."""

    def __init__(self, limit_mb: int, on_excess: Callable[[Sandbox], None]) -> None:
        self._limit_mb = limit_mb
        self._on_excess = on_excess
        self._watched: set[Sandbox] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self, sandbox: Sandbox) -> None:
        """A handler starts."""
        self._watched.add(sandbox)
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_S, self._check)

    def end(self, sandbox: Sandbox) -> None:
        """A handler has returned, or its process has ended."""
        self._watched.discard(sandbox)

    def _check(self) -> None:
        for sandbox in tuple(self._watched):
            if resident_mb(sandbox.pid) > self._limit_mb:
                self._on_excess(sandbox)
        self._timer = self._loop.call_later(CHECK_S, self._check) if self._watched else None
