"""What lies where in the folder of a run, and how such a folder comes to be: all at once or not at all.

    job.json            the job, all defaults filled in
    store-name          what it is called in the object store, where other homes may have a run of the same name
    brought-from        the bucket that it came from, if it did
    materials/          the user's functions and rows, so that the run needs nothing else
    lock, life.json     which process runs it, and which of its lives that is
    record.jsonl        what happened, one JSON line per round
    checkpoints/        the state of all models, the last two
    cancel.json         somebody wants it ended
    log.txt             what it said
    failed/             requests of tasks that failed for good
    weights/            the trained models
    result.json         it is done

Read next: `life.py`.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gradmux.orchestrator.disk import DISK, Disk, DiskError, tighten, tighten_all
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs.layout import require_layout

STAGING = ".new-"
OURS = ("runs", "slots", "local.", "prices.toml")
"""how the names of all that a home holds begin"""
NAME_BYTES = 255
"""of a file's name, at most"""
ABANDONED_S = 3600.0
"""A folder that has been in the making for so long is not being made any more."""


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The folder of one run."""

    folder: Path

    @property
    def run(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def job(self) -> Path:
        """The job as it was submitted, all defaults filled in."""
        return self.folder / "job.json"

    @property
    def store_name(self) -> Path:
        """Holds the run's name in the object store, which no other run of any home has."""
        return self.folder / "store-name"

    @property
    def origin(self) -> Path:
        """Holds where the run was brought from; it is not there in the folder that `submit` made."""
        return self.folder / "brought-from"

    @property
    def materials(self) -> Path:
        """The user's functions and rows."""
        return self.folder / "materials"

    @property
    def lock(self) -> Path:
        """Held by the process that runs the run, for as long as it lives."""
        return self.folder / "lock"

    @property
    def last_words(self) -> Path:
        """Why the last life ended, where its record does not say so."""
        return self.folder / "last-words.json"

    @property
    def life(self) -> Path:
        """The life that began last."""
        return self.folder / "life.json"

    @property
    def record(self) -> Path:
        """One JSON line per round."""
        return self.folder / "record.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The last two states of all models."""
        return self.folder / "checkpoints"

    @property
    def cancel(self) -> Path:
        """The life that somebody cancelled."""
        return self.folder / "cancel.json"

    @property
    def log(self) -> Path:
        """What it said."""
        return self.folder / "log.txt"

    @property
    def failed(self) -> Path:
        """Requests of tasks that failed for good."""
        return self.folder / "failed"

    @property
    def result(self) -> Path:
        """What `submit --json` printed; the run is done when it is there."""
        return self.folder / "result.json"

    @property
    def prices(self) -> Path:
        """The user's own table of prices, of the home that the run lies in; there may be none."""
        return prices_file(self.folder.absolute().parent.parent)

    def weights(self, model: str) -> Path:
        """The trained weights of one model."""
        return self.folder / "weights" / f"{model}.safetensors"

    def average(self, model: str) -> Path:
        """The moving average of its weights, where the job wants one."""
        return self.folder / "weights" / "ema" / f"{model}.safetensors"


def default_home() -> Path:
    """Where runs and the emulator's state lie unless said otherwise: GRADMUX_HOME, or the user's data folder."""
    if named := os.environ.get("GRADMUX_HOME"):
        return Path(named)
    from platformdirs import user_data_path

    return user_data_path("gradmux")


def prices_file(home: Path) -> Path:
    """The user's own table of prices, for everything under this home."""
    return home / "prices.toml"


def tighten_home(home: Path) -> None:
    """Makes a home its owner's alone, unless it is also the place of something else (`--home .`)."""
    if home.is_dir() and all(each.name.startswith(OURS) for each in home.iterdir()):
        tighten(home)
    tighten(runs_folder(home))


def runs_folder(home: Path) -> Path:
    """Where the folders of all runs lie."""
    return home / "runs"


def all_runs(home: Path) -> list[RunPaths]:
    """Every run, by name."""
    folder = runs_folder(home)
    found = sorted(folder.iterdir(), key=_by_name) if folder.is_dir() else []
    for each in (folder, *found):
        tighten(each)
    return [RunPaths(each) for each in found if (each / "job.json").exists()]


def find_run(home: Path, name: str, *, as_it_is: bool = False) -> RunPaths:
    """The run of that name, or in the folder of that name, which is its owner's alone from then on.

    `as_it_is`: it is not yet, so that files which others may have changed can be told of first.

    Raises: ConfigError when there is none, or what lies in its folder is of another kind than a run's.
    """
    if "\0" in name or any(len(os.fsencode(part)) > NAME_BYTES for part in name.split("/")):
        raise ConfigError(f"there is no run {name[:60]!a}...: no file has such a name")
    for folder in (runs_folder(home) / name, Path(name)):
        if name not in ("", ".", "..") and (folder / "job.json").is_file():
            if not as_it_is and (folder / "store-name").is_file():  # else it may be any folder of the user's
                tighten_all(folder)
            found = RunPaths(folder.resolve())
            require_layout(found)
            return found
    if name not in ("", ".", "..") and (emptied := runs_folder(home) / name).is_dir():
        raise ConfigError(f"{emptied} holds no job.json, which says what was submitted: restore it, or submit again")
    known = [paths.run for paths in all_runs(home)]
    listed = f"; the last ones are {', '.join(known[-3:])}" if known else "; there are none yet"
    raise ConfigError(f"there is no run {name!r} in {runs_folder(home)}{listed}")


def create_run(home: Path, name: str, fill: Callable[[RunPaths], None], disk: Disk = DISK) -> RunPaths:
    """A new run NAME-1, NAME-2, ...: `fill` puts job and materials into a folder that then gets its name at once.

    So no reader ever sees half a run, and two processes never share one. Raises DiskError; ConfigError when nothing can
    be kept in `home` at all.
    """
    runs = runs_folder(home)
    staging = runs / f"{STAGING}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        tighten_home(home)
        disk.make_folder(staging)
    except OSError as error:
        raise ConfigError(f"no run can be kept in the home folder {home}: {error.strerror or error}") from error
    try:
        _clear_abandoned(runs)
        fill(RunPaths(staging))
        disk.sync_folder(staging)
        return RunPaths(_named(staging, runs, name, disk))
    except OSError as error:
        raise DiskError(staging, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _named(staging: Path, runs: Path, name: str, disk: Disk) -> Path:
    """Renames to the first number that nobody has."""
    number = 1
    while True:
        folder = runs / f"{name}-{number}"
        try:
            if folder.exists():
                raise FileExistsError(errno.EEXIST, "taken", str(folder))
            disk.rename(staging, folder)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            number += 1
        else:
            disk.sync_folder(runs)
            return folder


def _clear_abandoned(runs: Path) -> None:
    """Removes what killed processes were making."""
    for folder in runs.glob(f"{STAGING}*"):
        try:
            old = time.time() - folder.stat().st_mtime > ABANDONED_S
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(folder, ignore_errors=True)


def _by_name(folder: Path) -> tuple[str, int]:
    """`digits-9` before `digits-10`."""
    found = re.fullmatch(r"(.*?)-(\d+)", folder.name)
    return (found[1], int(found[2])) if found else (folder.name, 0)
