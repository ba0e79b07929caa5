"""A run's folder in the object store: enough to go on with the run on another machine.

    folder/FILE                     functions, rows, result: written once; job: with the budget of the last life
    folder/lives/EPOCH              which machine began this life: whoever makes the object first has it
    folder/record/FROM-TO-EPOCH     the record, piece by piece, as it stood at each checkpoint
    checkpoints/NAME                the last two

A machine that finds a later life than its own in `lives` has been taken over, and stops. So two machines never both
believe that they go on with a run for longer than until their next checkpoint, and neither writes over what the other
has: every name has its life's number in it. Knows no S3. Read next: `checkpoints.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError, RunStopped
from gradmux.orchestrator.ports import Bucket, Store
from gradmux.orchestrator.runs.checkpoints import KEPT, NAME, Checkpoints
from gradmux.orchestrator.runs.door import Brought, Door, Piece, life_name, lives_in, pieces_in, safe_place
from gradmux.orchestrator.runs.layout import require_layout
from gradmux.orchestrator.runs.life import NEVER, Life, last_life, request_cancel
from gradmux.orchestrator.runs.lock import RunBusy, is_held
from gradmux.orchestrator.runs.paths import RunPaths, all_runs, create_run
from gradmux.orchestrator.store import RUN_NAME, Keys

BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
"""as S3 names, or has named, them"""


class Claims(Store, Protocol):
    """A store where an object can be made by one client only."""

    def create(self, key: str, data: bytes) -> bool:
        """False when there is such an object already."""
        ...


class Mirror:
    """Keeps the folder of one life of a run in the store."""

    def __init__(self, store: Claims, keys: Keys, paths: RunPaths, life: Life, root: str) -> None:
        """`root`: what people call the store, `s3://bucket`."""
        self._store, self._keys, self._paths, self._life = store, keys, paths, life
        self._url = f"{root}/{keys.prefix.rstrip('/')}"
        self._offset = 0

    def begin(self) -> None:
        """Claims this life's number, and writes the job and what never changes. Raises RunBusy when another has it."""
        note = json.dumps(asdict(self._life)).encode()
        key = self._keys.folder(life_name(self._life.epoch))
        if not self._store.create(key, note) and self._store.get(key) != note:
            raise RunBusy(f"{self._paths.run} has been resumed on another machine: `gradmux resume {self._url}`")
        self._store.put(self._keys.folder(self._paths.job.name), self._paths.job.read_bytes())
        files = sorted(path for path in self._paths.materials.rglob("*") if path.is_file())
        for path in (self._paths.store_name, *files):
            name = self._keys.folder(str(path.relative_to(self._paths.folder)))
            if not self._store.exists(name):
                self._store.put(name, path.read_bytes())
        pieces = _pieces(self._store, self._keys)
        mirrored = pieces[-1].end if pieces else 0
        self._offset = mirrored if mirrored <= self._paths.record.stat().st_size else 0

    def saved(self) -> None:
        """A checkpoint was written: brings record and checkpoint into the store. Raises RunStopped when taken over."""
        self._check_not_taken_over()
        self._push_record()
        files = Checkpoints(self._paths.checkpoints).files()
        if files:
            self._store.put(self._keys.checkpoint(files[-1].name), files[-1].read_bytes())
        self._store.delete(_checkpoint_keys(self._store, self._keys)[:-KEPT])

    def end(self) -> None:
        """The run is done: its result and weights, too."""
        self._push_record()
        weights = (path for path in self._paths.weights("").parent.rglob("*") if path.is_file())
        for path in (*sorted(weights), self._paths.result):
            self._store.put(self._keys.folder(str(path.relative_to(self._paths.folder))), path.read_bytes())

    def _push_record(self) -> None:
        with self._paths.record.open("rb") as file:
            file.seek(self._offset)
            piece = file.read()
        if piece:
            end = self._offset + len(piece)
            name = Piece(self._offset, self._life.epoch, end).name
            self._store.put(self._keys.folder(name), piece)
            self._offset = end

    def _check_not_taken_over(self) -> None:
        newest = last_claimed(self._store, self._keys)
        if newest > self._life.epoch:
            raise RunStopped(f"{self._paths.run} has been resumed on another machine since (life {newest})")


class NoMirror:
    """Keeps nothing anywhere."""

    def begin(self) -> None: ...
    def saved(self) -> None: ...
    def end(self) -> None: ...


def last_claimed(store: Store, keys: Keys) -> int:
    """The number of the last life that any machine has begun; NEVER when there was none."""
    return max(lives_in(_names(store, keys, "lives/")), default=NEVER)


def bring_from_s3(url: str, home: Path) -> RunPaths:
    """The folder of a run in a bucket, brought under `home`. Raises: as `bring`; ConfigError when it is no such URL."""
    from gradmux.orchestrator.store import open_bucket

    found = re.fullmatch(r"s3://([^/]+)/runs/([^/]+)/?", url)
    if found is None or not BUCKET.fullmatch(found[1]) or not RUN_NAME.fullmatch(found[2]):
        raise ConfigError(f"{url[:200]}: a run in S3 is s3://BUCKET/runs/NAME")
    store, keys = open_bucket(found[1]), Keys(found[2])
    try:
        return bring(store, keys, home, found[1])
    finally:
        store.close()


def bring(store: Bucket, keys: Keys, home: Path, bucket: str = "", disk: Disk = DISK) -> RunPaths:
    """The run's folder under `home`, as new as in the store, which people call `bucket`.

    A folder that is there already is kept when no other machine has gone on with the run; else it is brought up to
    date. Raises: ConfigError when the store has no such run, or what it has is none; RunBusy while a process here runs
    it. Then nothing of it is here that was not.
    """
    door = Door(store, keys)
    if not door.lives:
        raise ConfigError(f"there is no run under {keys.prefix} in this bucket that could be resumed")
    door.require_same_run()
    (name, job), life, cancelled, result = door.job(), door.life(door.lives[-1]), door.cancelled(), door.result()
    door.require_whole_record()
    door.require_room(home)
    if life.place is not None and not safe_place(life.place.own, bucket):
        life = replace(life, place=None)
    source = f"s3://{bucket or '...'}/{keys.prefix.rstrip('/')}"
    coming = _Coming(door, job, life, source, disk)
    paths = _local(home, keys.run)
    if paths is None:
        paths = create_run(home, name, lambda made: coming.all(made, keys.run), disk)
    else:
        require_layout(paths)
        if is_held(paths.lock):
            raise RunBusy(f"{paths.run} runs on this machine: `gradmux status {paths.run}`")
        known = last_life(paths)
        if known is None or not known.token or known.token != life.token:
            coming.progress(paths)
    if result is not None and not paths.result.exists():
        coming.result(paths, result)
    if cancelled > NEVER:
        request_cancel(paths, cancelled, disk)
    return paths


@dataclass(frozen=True, slots=True)
class _Coming:
    """A run that comes through the door into a folder."""

    door: Door
    job: bytes
    life: Life
    """that began last"""
    source: str
    """where it comes from, as people call it"""
    disk: Disk

    def all(self, paths: RunPaths, run: str) -> None:
        """Everything but a result, into a new folder."""
        self.disk.make_folder(paths.materials)
        for name in self.door.materials:
            self.disk.make_folder(inside(paths, name).parent)
            write_whole(inside(paths, name), self.door.material(name), self.disk)
        write_whole(paths.store_name, [run.encode()], self.disk)
        self.progress(paths)

    def progress(self, paths: RunPaths) -> None:
        """Job, record, checkpoints and the life that began last; what is there of them gives way."""
        write_whole(paths.origin, [self.source.encode()], self.disk)
        write_whole(paths.job, [self.job], self.disk)
        write_whole(paths.record, self.door.record(), self.disk)
        self.disk.make_folder(inside(paths, paths.checkpoints.name))
        names = self.door.checkpoints[-KEPT:]
        for name in names:
            write_whole(inside(paths, f"{paths.checkpoints.name}/{name}"), self.door.checkpoint(name), self.disk)
        for path in Checkpoints(paths.checkpoints).files():
            if path.name not in names:
                self.disk.remove(path)
        write_whole(paths.life, [json.dumps(asdict(self.life)).encode()], self.disk)

    def result(self, paths: RunPaths, result: Brought) -> None:
        """Weights and result of a run that is done; the result names the run and the files as they are here."""
        for name in result.weights:
            self.disk.make_folder(inside(paths, name).parent)
            write_whole(inside(paths, name), self.door.weights(name), self.disk)
        told = [{**each, "checkpoint": str(paths.weights(each["name"]))} for each in result.document["models"]]
        here = {**result.document, "run": paths.run, "models": told, "record": str(paths.record)}
        write_whole(paths.result, [json.dumps(here, indent=2).encode()], self.disk)


def inside(paths: RunPaths, name: str) -> Path:
    """The path of a file or folder of the run. Raises ConfigError when a link on the way leads out of its folder."""
    path, folder = paths.folder / name, paths.folder.resolve()
    where = path.parent.resolve() / path.name
    if path.is_dir():
        where = path.resolve()
    if folder not in where.parents:
        raise ConfigError(f"{path} leads out of the run's folder: put what it links to in its place")
    return path


def _local(home: Path, store_name: str) -> RunPaths | None:
    """The folder of this very run, if there is one here."""
    named = (paths for paths in all_runs(home) if paths.store_name.is_file())
    return next((paths for paths in named if paths.store_name.read_bytes() == store_name.encode()), None)


def _names(store: Store, keys: Keys, below: str) -> list[str]:
    """Names in the run's folder."""
    return [key.removeprefix(keys.folder("")) for key in store.list(keys.folder(below))]


def _pieces(store: Store, keys: Keys) -> list[Piece]:
    return pieces_in(_names(store, keys, "record/"))


def _checkpoint_keys(store: Store, keys: Keys) -> list[str]:
    """Oldest first."""
    found = store.list(keys.checkpoint(""))
    return sorted(key for key in found if NAME.fullmatch(key.rpartition("/")[2]))
