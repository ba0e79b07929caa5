"""One process per run: a lock that the kernel takes back when its holder ends, however it ends.

The pid of a process says nothing (another one may have it by now), and a file that a killed process could not remove
says nothing either. A flock says both: who holds it lives. Another program may lock the file, too (a backup, a file
server, `flock`): it is named, since two runs could not be told apart while it does. Knows nothing of runs. Read next:
`life.py`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradmux.orchestrator.disk import private_opener
from gradmux.orchestrator.errors import GradmuxError

PATIENCE_S = 0.3
"""Somebody who only looks holds the lock for an instant."""
LOOK_S = 0.02
NO_LOCK = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR)
"""There is none, or what is there is a link in a circle or a socket."""


KERNELS_LIST = Path("/proc/locks")
FLOCK = re.compile(r"\d+: FLOCK +ADVISORY +(READ|WRITE) +(-?\d+) +([0-9a-f]+):([0-9a-f]+):(\d+) ")


class RunBusy(GradmuxError):
    """Another process runs this run, or has locked it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a lock."""

    pid: int
    """0: one that cannot be seen from here, in another container"""
    shared: bool
    """others may have it beside this one; a run never takes it so"""

    def describe(self) -> str:
        if self.pid <= 0:
            return "a process outside of this container"
        try:
            name = Path(f"/proc/{self.pid}/comm").read_text(errors="replace").strip()
        except OSError:
            name = ""
        return f"process {self.pid} ({name})" if name else f"process {self.pid}"


@contextmanager
def only_process(lock: Path, what: str) -> Iterator[None]:
    """Holds the lock while the context is open, and never longer than this process lives. Raises RunBusy."""
    descriptor = private_opener(str(lock), os.O_RDWR | os.O_CREAT)
    try:
        if not _acquire(descriptor):
            raise busy(what, lock)
        yield
    finally:
        os.close(descriptor)


def busy(what: str, lock: Path) -> RunBusy:
    """What is said of a run that another process has, or whose lock somebody else holds."""
    found = holders(lock)
    if found and all(holder.shared for holder in found):
        told = ", ".join(holder.describe() for holder in found)
        return RunBusy(f"{lock} is locked by {told}, which does not run {what}: end that lock, then resume the run")
    told = f" ({found[0].describe()})" if len(found) == 1 else ""
    return RunBusy(f"{what} is being run by another process{told}; `gradmux status` shows it, `gradmux cancel` ends it")


def holders(lock: Path, listed: Path = KERNELS_LIST) -> list[Holder]:
    """Who has the lock now, as far as the kernel tells: empty where it does not."""
    try:
        about = lock.stat()
        lines = listed.read_text().splitlines()
    except OSError:
        return []
    mine = (os.major(about.st_dev), os.minor(about.st_dev), about.st_ino)
    found = [match for match in map(FLOCK.match, lines) if match is not None]
    return [
        Holder(int(pid), kind == "READ")
        for kind, pid, major, minor, inode in (match.groups() for match in found)
        if (int(major, 16), int(minor, 16), int(inode)) == mine
    ]


def is_held(lock: Path) -> bool:
    """Does a living process hold the lock?"""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # what is a pipe is not waited for
    except OSError as error:
        if error.errno not in NO_LOCK:
            raise
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire(descriptor: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        else:
            return True
