"""How many bytes a request is going to move, which whatever waits for it has to know: large ones may take longer.

Told through a context variable, since many layers and threads may lie between the two. Knows no store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

SLOWEST_BYTES_S = 1 << 18
"""What moves more slowly does not come to an end: 256 kB in a second."""


class Moving:
    """The bytes of one request, as far as they are known yet."""

    def __init__(self) -> None:
        self._size_bytes = 0
        self._lock = threading.Lock()

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self._size_bytes += size_bytes

    @property
    def longest_s(self) -> float:
        """How long they may take."""
        return self._size_bytes / SLOWEST_BYTES_S

    def told_of(self, request: Callable[[], T]) -> T:
        """Makes the request, which tells of its bytes here."""
        token = _MOVING.set(self)
        try:
            return request()
        finally:
            _MOVING.reset(token)


_MOVING: ContextVar[Moving | None] = ContextVar("moving", default=None)


def moves(size_bytes: int) -> None:
    """The request that is being made moves so many bytes more."""
    moving = _MOVING.get()
    if moving is not None:
        moving.add(size_bytes)
