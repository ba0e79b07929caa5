"""The state of all models of a run as one file: an uncompressed zip of safetensors and optimizer states.

A file is whole or not there: it gets its name when all of it is on disk, and every member has its CRC-32 (zip's own).
The last two are kept; a reader takes the newest that is whole. Knows no torch. Read next: `keeper.py`.
"""

from __future__ import annotations

import json
import logging
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradmux.orchestrator.disk import DISK, UNFINISHED, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import ModelState
from gradmux.orchestrator.runs.archive import UNREADABLE, zipped

log = logging.getLogger(__name__)

KEPT = 2
VERSION = 2
PROGRESS = {1: ".optimizer.pt", 2: ".state.safetensors"}
"""version -> what the file of a model's optimizer is called after its name; all of these are read"""
NAME = re.compile(r"([0-9]{6})-([0-9]{10})\.zip")
"""EPOCH-STEPS: what a later life saved is newer, whatever it had done by then"""
MANIFEST = "manifest.json"


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

    def newest(self) -> Checkpoint | None:
        """The last one that is whole; None when there is none. Raises ConfigError for one of a newer version."""
        for path in reversed(self.files()):
            try:
                return read_checkpoint(path)
            except UNREADABLE as error:
                log.warning("checkpoint %s is damaged (%s): the one before it is used", path, error)
        return None

    def files(self) -> list[Path]:
        """Oldest first, unread."""
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(path for path in found if NAME.fullmatch(path.name))

    def _prune(self) -> None:
        for path in self.files()[:-KEPT]:
            self._disk.remove(path)
        for path in self._folder.glob(f"*{UNFINISHED}"):
            self._disk.remove(path)


def read_checkpoint(path: Path) -> Checkpoint:
    """One file, every byte of it checked. Raises one of UNREADABLE, or ConfigError for one of a newer version."""
    with zipfile.ZipFile(path) as archive:
        manifest = _manifest(json.loads(archive.read(MANIFEST)), path)
        states = tuple(
            ModelState(steps, archive.read(f"{name}.safetensors"), archive.read(f"{name}{PROGRESS[manifest.version]}"))
            for name, steps in zip(manifest.models, manifest.steps, strict=True)
        )
    return Checkpoint(manifest, states)


def _manifest(fields: Any, path: Path) -> Manifest:
    if fields["version"] not in PROGRESS:
        raise ConfigError(f"{path} has version {fields['version']}, this gradmux reads 1 to {VERSION}: upgrade it")
    manifest = Manifest(**{**fields, "models": tuple(fields["models"]), "steps": tuple(fields["steps"])})
    if not all(isinstance(steps, int) and steps >= 0 for steps in manifest.steps):
        raise ValueError("steps must be whole numbers")
    return manifest


def _members(manifest: Manifest, states: Iterable[ModelState]) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, json.dumps(asdict(manifest)).encode()
    for name, steps, state in zip(manifest.models, manifest.steps, states, strict=True):
        assert state.steps == steps, f"{name} has done {state.steps} steps, the record says {steps}"
        yield f"{name}.safetensors", state.weights
        yield f"{name}{PROGRESS[VERSION]}", state.progress


def saved_steps(checkpoint: Checkpoint | None, models: Sequence[str]) -> tuple[int, ...]:
    """Steps done by model; zeros without a checkpoint. Raises ConfigError when it is of other models."""
    if checkpoint is None:
        return (0,) * len(models)
    if checkpoint.manifest.models != tuple(models):
        saved = ", ".join(checkpoint.manifest.models)
        raise ConfigError(f"the checkpoint is of the models {saved}, the job has {', '.join(models)}")
    return checkpoint.manifest.steps
