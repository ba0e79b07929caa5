"""Whether code that is about to run with the user's credentials is the user's own: who owns its files, who may change
them.

A job file names functions, and a kept run holds pickles: both are code, run here and in the workers. Nothing is
forbidden, for it may be meant so; the text says what would be run and whose it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path


def distrust(files: Iterable[Path]) -> str:
    """Why these files may hold somebody else's code, in one line; empty when only this user, or root, can write them.

    A folder counts with its files: whoever may write there can replace them.
    """
    paths = [file.resolve() for file in files]
    for path in dict.fromkeys([*paths, *(path.parent for path in paths)]):
        try:
            told = path.stat()
        except OSError:
            continue
        if told.st_uid not in (os.getuid(), 0):
            return f"{path} belongs to {_name(told.st_uid)}: its code runs with your credentials, read it first"
        if told.st_mode & stat.S_IWOTH and not told.st_mode & stat.S_ISVTX:
            return f"{path} may be changed by everybody: its code runs with your credentials, read it first"
    return ""


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
