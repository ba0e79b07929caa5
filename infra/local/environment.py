"""Files and folders that only their owner can read, and the one that leads a shell to a running emulator.

Modes are set, not asked for: the umask of whoever calls plays no part. Used by `detached.py` and `service.py`.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700
PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
"""They go before a key in the environment."""


def environment_file(state: Path) -> Path:
    """Where a detached emulator writes its variables, beside its state."""
    return state.with_suffix(".env")


def shell_lines(variables: Mapping[str, str]) -> str:
    """What a shell reads with `.`"""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([f"unset {' '.join(PROFILES)}", *exports, ""])


def write_private(path: Path, text: str) -> None:
    """Makes or replaces a file at once."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with open(unfinished, "w", opener=private_opener) as file:
        file.write(text)
    unfinished.replace(path)


def private_opener(path: str, flags: int) -> int:
    """For `open`: a file that was readable by others is so no longer."""
    descriptor = os.open(path, flags, FILE_MODE)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it that are not there, for their owner alone; else nothing."""
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
