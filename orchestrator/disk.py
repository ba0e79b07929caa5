"""What outlives the process: every write, flush and rename that the folder of a run sees goes through a `Disk`.

Each method of `Disk` is one system call that changes what a later process finds; a test can so end the world before,
after or in the middle of any of them. `write_whole` and `GrowingFile` are all that is built on it: a file is either
replaced as a whole, or only grows by whole pieces. All of it is its owner's alone, whatever the umask of the process
that makes it: code, rows, weights, and the key of an emulator. Knows nothing of runs. Read next: `record.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gradmux.orchestrator.errors import ConfigError, RunStopped

FILE_MODE, FOLDER_MODE = 0o600, 0o700
OTHERS = stat.S_IRWXG | stat.S_IRWXO
TAIL_BYTES = 65_536
UNFINISHED = ".unfinished"
"""suffix of files that are being written; what a killed process leaves of them is never read"""


class DiskError(RunStopped):
    """The disk is full, or the folder cannot be written: what was saved before is whole, the run can be resumed."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot write {path}: {error.strerror or error}; what was saved before is whole")


class Disk:
    """The real one."""

    def open(self, path: Path) -> int:
        """A descriptor that writes at the end of the file, which is made when there is none; its owner's alone."""
        return private_opener(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Writes some of `data`; how many bytes."""
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Returns when what was written survives a loss of power."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces a file, but no folder that has something in it."""
        source.rename(target)

    def make_folder(self, path: Path) -> None:
        make_private(path)

    def sync_folder(self, path: Path) -> None:
        """Returns when the names in the folder survive a loss of power."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class SharedDisk(Disk):
    """For what users ask for by its path: who may read it is what their umask says."""

    def open(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


DISK = Disk()
SHARED = SharedDisk()


def write_whole(path: Path, pieces: Iterable[bytes | memoryview], disk: Disk = DISK) -> None:
    """Makes or replaces a file: a reader, whenever it comes, finds the old content or the new. Raises DiskError."""
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        disk.remove(unfinished)
        descriptor = disk.open(unfinished)
        try:
            for piece in pieces:
                _write_all(disk, descriptor, piece)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        disk.rename(unfinished, path)
        disk.sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            disk.remove(unfinished)
        raise DiskError(path, error) from error


class GrowingFile:
    """A file that only grows, by whole pieces: when one cannot be written, nothing of it stays."""

    def __init__(self, path: Path, disk: Disk = DISK, *, sync: bool = True) -> None:
        """A torn last line, which a killed process left, is cut off. `sync`: a piece is on disk when `append` returns.

        Raises: DiskError.
        """
        self._path, self._disk, self._sync = path, disk, sync
        try:
            disk.make_folder(path.parent)
            self._descriptor = disk.open(path)
            self.size = size_of_whole_lines(path)
            if self.size < path.stat().st_size:
                disk.truncate(self._descriptor, self.size)
            disk.sync_folder(path.parent)
        except OSError as error:
            raise DiskError(path, error) from error

    def append(self, data: bytes) -> None:
        """Adds one piece. Raises DiskError; the file is then as before."""
        try:
            _write_all(self._disk, self._descriptor, data)
            if self._sync:
                self._disk.sync(self._descriptor)
        except OSError as error:
            self._disk.truncate(self._descriptor, self.size)
            raise DiskError(self._path, error) from error
        self.size += len(data)

    def close(self) -> None:
        self._disk.close(self._descriptor)


def size_of_whole_lines(path: Path) -> int:
    """Bytes up to and including the last newline."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def require_writable(path: Path) -> None:
    """To be asked before the work whose outcome goes there. Raises ConfigError when `path` cannot be a file."""
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"cannot write {path}: you may not write there")


def _write_all(disk: Disk, descriptor: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[disk.write(descriptor, left) :]


# --- whose files are -------------------------------------------------------------------------------------------------


def private_opener(path: str, flags: int, mode: int = FILE_MODE) -> int:
    """For `open`, and in place of `os.open`: a file that others could read, they can read no longer."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with suppress(PermissionError):  # another user's file, which was opened to them on purpose
            os.fchmod(descriptor, mode)
    return descriptor


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it that are not there, for their owner alone; one that is there stays as it is.

    Raises: OSError.
    """
    try:
        folder.mkdir(FOLDER_MODE)
    except FileNotFoundError:
        make_private(folder.parent)
        make_private(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(FOLDER_MODE)


def tighten(path: Path) -> None:
    """Takes from all others what they may do with a file or folder of ours; links and what is not ours stay."""
    with suppress(OSError):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & OTHERS and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


def tighten_all(folder: Path) -> None:
    """The same for a folder and all that lies in it. The folder comes first: from then on no other user gets in."""
    tighten(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            tighten(Path(place, name))
