"""Files and folders that only their owner can read, whatever the umask of the process that makes them.

What a run keeps is its owner's: code, rows, weights, and the key of its emulator. Knows nothing of runs. Used by
`disk.py`, and wherever a file of the home folder is made.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700
OTHERS = stat.S_IRWXG | stat.S_IRWXO


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
    """The same for a folder and all that lies in it. The folder comes first: from then on nobody else gets in."""
    tighten(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            tighten(Path(place, name))
