"""The state of all models of a run as one file: an uncompressed zip of safetensors and optimizer states.

A file is whole or not there: it gets its name when all of it is on disk, and every member has its CRC-32 (zip's own).
The last two are kept; a reader takes the newest that is whole. Knows no torch. Read next: `keeper.py`.
"""

from __future__ import annotations

import json
import logging
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gradmux.orchestrator.disk import DISK, UNFINISHED, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import ModelState
from gradmux.orchestrator.runs.archive import UNREADABLE, zipped

log = logging.getLogger(__name__)

KEPT = 2
VERSION = 3
PROGRESS = {1: ".optimizer.pt", 2: ".state.safetensors", 3: ".state.safetensors"}
"""version -> what the file of a model's optimizer is called after its name; all of these are read"""
NAME = re.compile(r"([0-9]{6})-([0-9]{10})\.zip")
"""EPOCH-STEPS: what a later life saved is newer, whatever it had done by then"""
MANIFEST = "manifest.json"
MANIFEST_BYTES = 16 << 20
NAMES_TOLD = 8


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint is of."""

    run: str
    epoch: int
    """the life that wrote it"""
    models: tuple[str, ...]
    steps: tuple[int, ...]
    """done, by model"""
    version: int = VERSION
    of: str = ""
    """the run's name in the object store, which no other run has; empty in files of versions before 3"""

    @property
    def file_name(self) -> str:
        return f"{self.epoch:06d}-{sum(self.steps):010d}.zip"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All models of a run between two steps."""

    manifest: Manifest
    states: tuple[ModelState, ...]


class Checkpoints:
    """The checkpoints in one folder."""

    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self._folder, self._disk = folder, disk

    def write(self, manifest: Manifest, states: Iterable[ModelState]) -> Path:
        """Saves; then removes all but the last two. `states` are asked for one by one. Raises DiskError."""
        self._disk.make_folder(self._folder)
        path = self._folder / manifest.file_name
        write_whole(path, zipped(_members(manifest, states)), self._disk)
        self._prune()
        return path

    def newest(self, of: str = "") -> Checkpoint | None:
        """The last one that is whole, every byte of it checked; None when there is none.

        `of`: the run's name in the object store. Raises ConfigError for one of another run or of a newer version, and
        when files are there but none is whole.
        """
        return self._first(read_checkpoint, of)

    def newest_manifest(self, of: str = "") -> Manifest | None:
        """What the last one is of, as far as that can be read. Raises: as `newest`."""
        found = self._first(_described, of)
        return None if found is None else found.manifest

    def files(self) -> list[Path]:
        """Oldest first, unread. Raises ConfigError when the folder is none, or cannot be read."""
        try:
            return sorted(path for path in self._folder.iterdir() if NAME.fullmatch(path.name))
        except FileNotFoundError:
            if self._folder.is_symlink():
                raise ConfigError(f"{self._folder} is a link that leads nowhere: restore the folder") from None
            return []
        except NotADirectoryError:
            raise ConfigError(f"{self._folder} must be a folder, but is a file: move it away") from None
        except OSError as error:
            raise ConfigError(f"{self._folder} cannot be read: {error.strerror}") from error

    def _first(self, read: Callable[[Path], Checkpoint], of: str) -> Checkpoint | None:
        """The last one that can be read so, if it is of this run."""
        files = self.files()
        for path in reversed(files):
            try:
                found = read(path)
            except UNREADABLE as error:
                log.warning("checkpoint %s is damaged (%s)", path, error)
                continue
            _require_own(path, found.manifest, of)
            return found
        if files:
            raise ConfigError(
                f"no checkpoint in {self._folder} can be read: restore {files[-1].name}, or remove the folder: the run "
                "then begins again with its first step"
            )
        return None

    def _prune(self) -> None:
        for path in self.files()[:-KEPT]:
            self._disk.remove(path)
        for path in self._folder.glob(f"*{UNFINISHED}"):
            self._disk.remove(path)


def read_checkpoint(path: Path) -> Checkpoint:
    """One file, every byte of it checked. Raises one of UNREADABLE, or ConfigError for one of a newer version."""
    with _opened(path) as archive:
        manifest = _manifest(archive, path)
        states = tuple(
            ModelState(steps, archive.read(f"{name}.safetensors"), archive.read(f"{name}{PROGRESS[manifest.version]}"))
            for name, steps in zip(manifest.models, manifest.steps, strict=True)
        )
    return Checkpoint(manifest, states)


def _described(path: Path) -> Checkpoint:
    """The same without states."""
    with _opened(path) as archive:
        return Checkpoint(_manifest(archive, path), ())


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file, of which reading takes no more memory than the file has bytes. Raises one of UNREADABLE."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(each.compress_type != zipfile.ZIP_STORED or each.file_size != each.compress_size for each in members):
            raise ValueError("it is compressed, which no checkpoint is")
        if len({each.filename for each in members}) < len(members):
            raise ValueError("two of its members have the same name")
        if sum(each.file_size for each in members) > path.stat().st_size:
            raise ValueError("its members overlap")
        yield archive


def _manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    """Raises one of UNREADABLE, or ConfigError for one of a newer version."""
    if archive.getinfo(MANIFEST).file_size > MANIFEST_BYTES:
        raise ValueError("its manifest is too large")
    fields = json.loads(archive.read(MANIFEST))
    version = fields["version"]
    if type(version) is int and version > VERSION:
        raise ConfigError(f"{path} has version {version}, this gradmux reads 1 to {VERSION}: upgrade it")
    manifest = Manifest(**{**fields, "models": tuple(fields["models"]), "steps": tuple(fields["steps"])})
    if version not in PROGRESS or not all(isinstance(each, str) for each in (manifest.of, *manifest.models)):
        raise ValueError("version, run and models must be a number and names")
    if not all(type(each) is int and each >= 0 for each in (manifest.epoch, *manifest.steps)):
        raise ValueError("steps must be whole numbers")
    if len(manifest.models) != len(manifest.steps) or len(set(manifest.models)) < len(manifest.models):
        raise ValueError("every model must be there once, with its steps")
    return manifest


def _require_own(path: Path, manifest: Manifest, of: str) -> None:
    """Raises ConfigError when a file that is whole is not what its place and its name say."""
    if of and manifest.of and manifest.of != of:
        raise ConfigError(
            f"{path} is a checkpoint of another run ({manifest.of[:60]!a}): restore this run's own, or move the file "
            "away: the run then goes on from the one before"
        )
    if manifest.file_name != path.name:
        raise ConfigError(
            f"{path} is the checkpoint {manifest.file_name} under another name: give it back its own, or move it away"
        )


def _members(manifest: Manifest, states: Iterable[ModelState]) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, json.dumps(asdict(manifest)).encode()
    for name, steps, state in zip(manifest.models, manifest.steps, states, strict=True):
        assert state.steps == steps, f"{name} has done {state.steps} steps, the record says {steps}"
        yield f"{name}.safetensors", state.weights
        yield f"{name}{PROGRESS[VERSION]}", state.progress


def saved_steps(manifest: Manifest | None, models: Sequence[str]) -> tuple[int, ...]:
    """Steps done by model; zeros without a checkpoint. Raises ConfigError when it is of other models."""
    if manifest is None:
        return (0,) * len(models)
    if manifest.models != tuple(models):
        raise ConfigError(
            f"the checkpoint is of the models {_listed(manifest.models)}, the job has {_listed(models)}: put job.json "
            "back as it was, or submit a new job"
        )
    return manifest.steps


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return ", ".join(name if name.isprintable() else ascii(name) for name in names[:NAMES_TOLD]) + more
