"""Disks that go wrong: the process dies at a chosen write, the machine loses its power, the disk is full.

Real classes in the place of `Disk`. None of them waits for the hardware: what a loss of power would take is worked out,
not measured.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from gradmux.orchestrator.disk import Disk


class Died(BaseException):
    """The process is gone. No `except Exception` of ours may see it."""


class FastDisk(Disk):
    """The real one, except that nothing is forced to the hardware."""

    def sync(self, descriptor: int) -> None:
        """At once."""

    def sync_folder(self, path: Path) -> None:
        """At once."""


FAST_DISK = FastDisk()


class DyingDisk(FastDisk):
    """Counts what persists, and ends the process at call number `at`: before it, or in the middle of a write.

    After that the process does nothing more, whatever its handlers would like to do.
    """

    def __init__(self, at: int | None = None, *, torn: bool = False) -> None:
        self.calls = 0
        self.dead = False
        self._at, self._torn = at, torn

    def die(self) -> None:
        """Nothing is written from now on."""
        self.dead = True

    def open(self, path: Path) -> int:
        self._count()
        return super().open(path)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self._torn and self.calls + 1 == self._at and not self.dead:
            super().write(descriptor, data[: len(data) // 2])
        self._count()
        return super().write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        self._count()
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self._count()

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def make_folder(self, path: Path) -> None:
        self._count()
        super().make_folder(path)

    def sync_folder(self, path: Path) -> None:
        self._count()

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def _count(self) -> None:
        self.calls += 1
        if self.dead or self.calls == self._at:
            self.die()
            raise Died


class PowerlessDisk(DyingDisk):
    """When it dies, what was not forced to the hardware by then is gone: bytes, new names, renames."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self._paths: dict[int, Path] = {}
        self._safe_sizes: dict[Path, int] = {}
        """path -> bytes that are on the hardware; of files that were written to since"""
        self._renames: list[tuple[Path, Path, bytes | None]] = []
        """source, target, what the target held; not on the hardware yet"""

    def open(self, path: Path) -> int:
        safe = path.stat().st_size if path.exists() else 0
        descriptor = super().open(path)
        self._paths[descriptor] = path
        self._safe_sizes.setdefault(path, safe)
        return descriptor

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._safe_sizes[self._paths[descriptor]] = os.fstat(descriptor).st_size

    def rename(self, source: Path, target: Path) -> None:
        held = target.read_bytes() if target.is_file() else None
        super().rename(source, target)
        self._renames.append((source, target, held))
        if target.is_file():
            self._safe_sizes[target] = self._safe_sizes.pop(source, 0)

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._renames = [rename for rename in self._renames if rename[1].parent != path]

    def die(self) -> None:
        if self.dead:
            return
        super().die()
        for path, size in self._safe_sizes.items():
            if path.exists():
                os.truncate(path, size)
        for source, target, held in reversed(self._renames):
            target.rename(source)
            if held is not None:
                target.write_bytes(held)


class FullDisk(FastDisk):
    """Has room for `free` more bytes; takes half of what does not fit, as a real one may."""

    def __init__(self, free: int) -> None:
        self.free = free

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if len(data) > self.free:
            part = data[: self.free // 2]
            self.free -= len(part)
            if part:
                return super().write(descriptor, part)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= len(data)
        return super().write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        self.free += os.fstat(descriptor).st_size - size
        super().truncate(descriptor, size)
