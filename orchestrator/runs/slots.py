"""A limit that several processes share fairly: how many invocations this machine may have in flight at one endpoint.

Each process holds a lease, a small file that says how many slots it uses and how many more it waits for. Its flock
tells the others that it lives, so the slots of a killed process are free at once. While others wait, nobody takes more
than an equal share; else whatever is free. Knows no fleet. Read next: `fleets/between.py`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradmux.orchestrator.disk import DiskError, make_private, private_opener
from gradmux.orchestrator.runs.paths import RunPaths

LEASE = struct.Struct("<QQ")
"""slots used, slots waited for"""
LEDGER = "ledger"
SUFFIX = ".lease"


def slots_folder(paths: RunPaths, pool: str) -> Path:
    """Where the runs beside this one that invoke workers of the same pool share their slots."""
    return paths.folder.parent.parent / "slots" / pool


class Slots:
    """This process's lease on the slots in `folder`. Use it from one thread at a time."""

    def __init__(self, folder: Path, limit: int) -> None:
        """At most `limit` slots are used by all processes together, as far as this one is concerned.

        Raises: DiskError.
        """
        self._folder, self._limit = folder, limit
        self._used = self._waiting = 0
        self._path = folder / f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        try:
            make_private(folder)
            with self._alone():
                self._descriptor = private_opener(str(self._path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                self._write()
        except OSError as error:
            raise DiskError(self._path, error) from error

    @property
    def used(self) -> int:
        """Slots that this process holds."""
        return self._used

    def take(self, wanted: int) -> int:
        """Takes up to `wanted` more slots; how many. The rest is waited for: ask again."""
        with self._alone():
            others = list(self._others())
            free = self._limit - self._used - sum(used for used, _ in others)
            if any(waiting for _, waiting in others):
                active = 1 + sum(1 for used, waiting in others if used or waiting)
                free = min(free, max(1, self._limit // active) - self._used)
            granted = max(0, min(wanted, free))
            self._used += granted
            self._waiting = wanted - granted
            self._write()
        return granted

    def give_back(self, count: int) -> None:
        """So many invocations have come back."""
        self._used -= count
        self._write()

    def close(self) -> None:
        """Gives everything back."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _write(self) -> None:
        os.pwrite(self._descriptor, LEASE.pack(self._used, self._waiting), 0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else takes slots meanwhile."""
        descriptor = private_opener(str(self._folder / LEDGER), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _others(self) -> Iterator[tuple[int, int]]:
        """(used, waiting) of every other living process; the leases of dead ones are removed."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path != self._path and (lease := _read_if_held(path)) is not None:
                yield lease


def _read_if_held(path: Path) -> tuple[int, int] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return None
    except BlockingIOError:
        data = os.pread(descriptor, LEASE.size, 0)
        used, waiting = LEASE.unpack(data) if len(data) == LEASE.size else (0, 0)
        return used, waiting
    finally:
        os.close(descriptor)
