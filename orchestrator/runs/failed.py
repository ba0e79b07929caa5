"""The request of a task that failed for good, with all that it refers to but the rows: to be run again, here.

One zip in the run's folder, named after life, round and worker. The rows are the run's own (`materials.py`).
Read next: `cli/commands/replay_task.py`, which runs it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs.archive import UNREADABLE, zipped
from gradmux.orchestrator.runs.life import FolderError
from gradmux.orchestrator.runs.paths import RunPaths

REQUEST, OBJECTS = "request.json", "objects/"


@dataclass(frozen=True, slots=True)
class FailedTask:
    """What a worker was asked, and what it would read."""

    name: str
    request: bytes
    """as it was sent"""
    objects: Mapping[str, bytes]
    """S3 key -> content: model spec and snapshots"""


def save_failed(
    paths: RunPaths, name: str, request: bytes, objects: Iterable[tuple[str, bytes]], disk: Disk = DISK
) -> Path:
    """Writes it to the run's folder. Raises DiskError."""
    disk.make_folder(paths.failed)
    path = paths.failed / f"{name}.zip"
    members = [(REQUEST, request), *((f"{OBJECTS}{key}", content) for key, content in objects)]
    write_whole(path, zipped(members), disk)
    return path


def load_failed(paths: RunPaths, name: str | None = None) -> FailedTask:
    """The one of that name, or the newest. Raises ConfigError when there is none, FolderError when it is damaged."""
    files = sorted(paths.failed.glob("*.zip"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise ConfigError(f"no task of {paths.run} failed for good: there is nothing to replay")
    chosen = [path for path in files if name in (None, path.stem)]
    if not chosen:
        raise ConfigError(f"{paths.run} has no failed task {name!r}; it has {', '.join(path.stem for path in files)}")
    try:
        with zipfile.ZipFile(chosen[-1]) as archive:
            names = [each for each in archive.namelist() if each.startswith(OBJECTS)]
            objects = {each.removeprefix(OBJECTS): archive.read(each) for each in names}
            return FailedTask(chosen[-1].stem, archive.read(REQUEST), objects)
    except UNREADABLE as error:
        raise FolderError(f"{chosen[-1]} cannot be read: {error}") from error
