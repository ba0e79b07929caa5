"""Bounded caches of a warm sandbox: objects on disk, values in memory.

Keys are content addressed, so nothing ever goes stale; the least recently used goes first. /tmp outlives an invocation
and even a crash of the process, so the disk cache starts from what it finds there and trusts only whole files.
Knows nothing of data sets or models.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["DiskCache", "MemoryCache"]

T = TypeVar("T")


class DiskCache:
    """Files of one directory, one per key, at most `limit_bytes` together."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._directory = directory
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """File name -> bytes, least recently used first."""
        self._adopt()

    @property
    def used_bytes(self) -> int:
        return sum(self._sizes.values())

    def open(self, key: str, size: int, pieces: Callable[[], Iterable[bytes]]) -> NDArray[np.uint8] | None:
        """The object's bytes, memory-mapped (copy on write); None when it does not fit.

        `pieces` fetches the object, and is called only if it is not here yet. Copy what you need out of the map and
        let it go: a file that is evicted while mapped occupies the disk until then.
        """
        name = hashlib.sha256(f"{size} {key}".encode()).hexdigest()
        if name not in self._sizes or not (self._directory / name).exists():
            self._sizes.pop(name, None)
            if size > self.limit_bytes or not self._fetch(name, size, pieces):
                return None
            self._sizes[name] = size
        self._sizes.move_to_end(name)
        return np.memmap(self._directory / name, dtype=np.uint8, mode="c", shape=(size,))

    def _fetch(self, name: str, size: int, pieces: Callable[[], Iterable[bytes]]) -> bool:
        """Writes the file under another name first: a file under its own name is whole. False when the disk is full."""
        self._shrink_to(self.limit_bytes - size)
        partial = self._directory / f"{name}.{os.getpid()}.part"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                file.writelines(pieces())
            partial.replace(self._directory / name)
        except OSError:  # no space left, most likely; the store's own errors are no OSError
            self._shrink_to(0)
            return False
        finally:
            with suppress(OSError):
                partial.unlink()
        return True

    def _shrink_to(self, bytes_left: int) -> None:
        while self._sizes and self.used_bytes > max(bytes_left, 0):
            name, _ = self._sizes.popitem(last=False)
            (self._directory / name).unlink(missing_ok=True)

    def _adopt(self) -> None:
        """Takes over whole files of a former process, oldest first, and clears away its partial ones."""
        if not self._directory.is_dir():
            return
        files = sorted(self._directory.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in files:
            if path.suffix:
                path.unlink(missing_ok=True)
            else:
                self._sizes[path.name] = path.stat().st_size
        self._shrink_to(self.limit_bytes)


class MemoryCache(Generic[T]):
    """Values by key, at most `limit` of them and `limit_bytes` together (but always room for one)."""

    def __init__(self, limit: int, limit_bytes: int = 2**63) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[Any, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Any, make: Callable[[], tuple[T, int]]) -> T:
        """The value of a key; `make` gives (value, bytes) when it is not here. An exception of `make` keeps nothing."""
        if key not in self._values:
            self._values[key] = make()
            while len(self._values) > 1 and self._over():
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key][0]

    def _over(self) -> bool:
        return len(self._values) > self._limit or sum(size for _, size in self._values.values()) > self._limit_bytes
