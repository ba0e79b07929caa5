"""A folder for what is too large to hold in memory: made when it is needed, gone with who uses it.

It lies in the user's cache, not in /tmp, which on many machines is memory. Knows nothing of what is put there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Protocol

import platformdirs
import psutil

from gradmux.orchestrator.disk import Disk, make_private, write_whole

PLACE = "spool"


class Fetches(Protocol):
    """A store that gives an object piece by piece."""

    def pieces(self, key: str) -> Iterable[bytes | memoryview]: ...


class _PassingDisk(Disk):
    """Nothing on it has to survive a loss of power."""

    def sync(self, descriptor: int) -> None: ...

    def sync_folder(self, path: Path) -> None: ...


class Spool:
    """One such folder."""

    @cached_property
    def path(self) -> Path:
        """The folder itself."""
        path = _make()
        weakref.finalize(self, shutil.rmtree, str(path), True)
        return path

    def write(self, pieces: Iterable[bytes | memoryview]) -> Path:
        """A file of these bytes, for as long as this object lasts. Raises: DiskError."""
        path = self.path / str(len(list(self.path.iterdir())))
        write_whole(path, pieces, _PassingDisk())
        return path

    def fetch(self, store: Fetches, key: str, suffix: str) -> Path:
        """A copy of an object, for as long as this object lasts. Raises: DiskError, and what the store raises."""
        path = self.path / f"{len(list(self.path.iterdir()))}{suffix}"
        write_whole(path, store.pieces(key))
        return path


def _make() -> Path:
    """Named after the process; what dead processes have left is removed."""
    try:
        place = platformdirs.user_cache_path("gradmux") / PLACE
        make_private(place)
        for left in place.iterdir():
            owner = left.name.partition("-")[0]
            if owner.isdecimal() and not psutil.pid_exists(int(owner)):
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=place))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="gradmux-"))
