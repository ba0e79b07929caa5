"""One process per run: a lock that the kernel takes back when its holder ends, however it ends.

The pid of a process says nothing (another one may have it by now), and a file that a killed process could not remove
says nothing either. A flock says both: who holds it lives. Knows nothing of runs. Read next: `life.py`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradmux.orchestrator.disk import private_opener
from gradmux.orchestrator.errors import GradmuxError

PATIENCE_S = 0.3
"""Somebody who only looks holds the lock for an instant."""
LOOK_S = 0.02


class RunBusy(GradmuxError):
    """Another process runs this run."""


@contextmanager
def only_process(lock: Path, what: str) -> Iterator[None]:
    """Holds the lock while the context is open, and never longer than this process lives. Raises RunBusy."""
    descriptor = private_opener(str(lock), os.O_RDWR | os.O_CREAT)
    try:
        if not _acquire(descriptor):
            raise busy(what)
        yield
    finally:
        os.close(descriptor)


def busy(what: str) -> RunBusy:
    """What is said of a run that another process has."""
    return RunBusy(f"{what} is being run by another process; `gradmux status` shows it, `gradmux cancel` ends it")


def is_held(lock: Path) -> bool:
    """Does a living process hold the lock?"""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
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
