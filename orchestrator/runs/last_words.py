"""Why a life ended, where its record cannot say so: the disk is full, or it had no record yet.

The room for these words is taken when the life begins: to write into the middle of a file that is there takes none.
Knows no record. Written by `life.py`, read by `status.py`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gradmux.orchestrator.disk import DISK, Disk, DiskError, write_whole
from gradmux.orchestrator.errors import GradmuxError

ROOM_BYTES = 2048
LONGEST = 400
"""characters of a reason, of 4 bytes at most"""


@dataclass(frozen=True, slots=True)
class LastWords:
    """Of one life."""

    epoch: int
    state: str
    """as `EndLine.state`"""
    reason: str
    """one line"""


def make_room(path: Path, disk: Disk = DISK) -> None:
    """Sees to it that there is room; where there is none any more, the life goes on without."""
    with suppress(OSError):
        if path.stat().st_size == ROOM_BYTES:
            return
    with suppress(DiskError):
        write_whole(path, [b" " * ROOM_BYTES], disk)


def say(path: Path, epoch: int, error: BaseException) -> None:
    """Writes down what ended this life, if there is room."""
    state = error.state if isinstance(error, GradmuxError) else "failed" if isinstance(error, Exception) else "stopped"
    reason = " ".join(str(error).partition("\n")[0].split())[:LONGEST] or type(error).__name__
    text = json.dumps({"epoch": epoch, "state": state, "reason": reason}, ensure_ascii=False).encode(errors="replace")
    if len(text) > ROOM_BYTES:
        text = json.dumps({"epoch": epoch, "state": state, "reason": type(error).__name__}).encode()
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would hang
        try:
            os.pwrite(descriptor, text.ljust(ROOM_BYTES), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def last_words(path: Path) -> LastWords | None:
    """Those of the last life that had any; None where there are none that can be read."""
    if not path.is_file():  # a pipe would hang
        return None
    try:
        fields = json.loads(path.read_bytes())
        return LastWords(int(fields["epoch"]), str(fields["state"]), str(fields["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
