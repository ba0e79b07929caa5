"""Is everything in a run's folder of the kind that it should be: files where files belong, folders where folders do?

A folder may have been copied, unpacked from somebody's archive, or mended by hand. What is no plain file is never
opened for writing (a link would be written through), and a pipe is never waited for. Read next: `paths.py`.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.orchestrator.runs.paths import RunPaths


def require_layout(paths: RunPaths) -> None:
    """Raises ConfigError that names the first thing which is of another kind than a run's."""
    for file in (
        paths.job, paths.store_name, paths.origin, paths.lock, paths.life, paths.record, paths.cancel, paths.log,
        paths.result, paths.last_words,
    ):  # fmt: skip
        _require_file(file)
    for folder in (paths.materials, paths.checkpoints, paths.failed, paths.weights("").parent):
        _require_folder(folder)


def _require_file(path: Path) -> None:
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        raise ConfigError(f"{path} must be a file, but is {_kind(mode)}: move it away, or put the file in its place")


def _require_folder(path: Path) -> None:
    """A link to a folder is one: a large disk may have the checkpoints."""
    mode = _mode(path)
    if mode is not None and not path.is_dir():
        raise ConfigError(
            f"{path} must be a folder, but is {_kind(mode)}: move it away, or put the folder in its place"
        )


def _mode(path: Path) -> int | None:
    """What lies there, no link being followed; None: nothing."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be looked at: {error.strerror}") from error


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for holds, name in kinds if holds(mode)), "a device")
