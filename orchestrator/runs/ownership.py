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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradmux.orchestrator.config import JobConfig
    from gradmux.orchestrator.runs.paths import RunPaths


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


def files_of_job(job: Path, config: JobConfig) -> list[Path]:
    """The job file, and the modules that it names, as far as they lie beside it."""
    named = {*(model.factory for model in config.models), config.training.loss, *config.training.metrics}
    modules = {each.partition(":")[0].partition(".")[0] for each in named if ":" in each}
    places = [place for name in sorted(modules) for place in (f"{name}.py", f"{name}/__init__.py")]
    return [job, *(path for place in places if (path := job.parent / place).exists())]


def files_of_run(paths: RunPaths) -> list[Path]:
    """What a kept run would have run: its job, and the functions that it holds as pickles."""
    return [path for path in (paths.job, *sorted(paths.materials.glob("*"))) if path.exists()]


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
