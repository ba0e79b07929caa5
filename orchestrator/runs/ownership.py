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

ORIGIN_BYTES = 512
"""of the note where a run comes from"""

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


def distrust_run(paths: RunPaths) -> str:
    """Why the code of a kept run may be somebody else's, in one line; empty when it is this user's own.

    A run that was brought from a bucket is named as such each time, until its user says that it is theirs.
    """
    if (source := _origin(paths)) is not None:
        return (
            f"the functions of {source} come from that bucket and run with your credentials: is it your run? "
            f"(if so, and to hear this no more, remove {paths.origin})"
        )
    return distrust(files_of_run(paths))


def _origin(paths: RunPaths) -> str | None:
    """Where it was brought from; None: it was made here."""
    try:
        source = paths.origin.read_bytes()[:ORIGIN_BYTES].decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError:
        return "this run"
    return "".join(filter(str.isprintable, source)) or "this run"


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
