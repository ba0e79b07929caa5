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
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError, RunStopped
from gradmux.orchestrator.ports import Store
from gradmux.orchestrator.runs.checkpoints import KEPT, NAME, Checkpoints
from gradmux.orchestrator.runs.life import NEVER, Life, last_life, request_cancel
from gradmux.orchestrator.runs.lock import RunBusy, is_held
from gradmux.orchestrator.runs.paths import RunPaths, all_runs, create_run
from gradmux.orchestrator.store import Keys

PIECE = re.compile(r"(\d{12})-(\d{12})-(\d{6})")
"""which bytes of the record a piece holds, and whose it is"""


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
        key = self._keys.folder(_life_name(self._life.epoch))
        if not self._store.create(key, note) and self._store.get(key) != note:
            raise RunBusy(f"{self._paths.run} has been resumed on another machine: `gradmux resume {self._url}`")
        self._store.put(self._keys.folder(self._paths.job.name), self._paths.job.read_bytes())
        files = sorted(path for path in self._paths.materials.rglob("*") if path.is_file())
        for path in (self._paths.store_name, *files):
            name = self._keys.folder(str(path.relative_to(self._paths.folder)))
            if not self._store.exists(name):
                self._store.put(name, path.read_bytes())
        pieces = _pieces(self._store, self._keys)
        mirrored = int(_place(pieces[-1])[1]) if pieces else 0
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
        for path in (self._paths.result, *sorted(self._paths.weights("").parent.glob("*"))):
            self._store.put(self._keys.folder(str(path.relative_to(self._paths.folder))), path.read_bytes())

    def _push_record(self) -> None:
        with self._paths.record.open("rb") as file:
            file.seek(self._offset)
            piece = file.read()
        if piece:
            end = self._offset + len(piece)
            name = f"record/{self._offset:012d}-{end:012d}-{self._life.epoch:06d}"
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
    names = (key.rpartition("/")[2] for key in store.list(keys.folder("lives/")))
    return max((int(name) for name in names if name.isdigit()), default=NEVER)


def bring_from_s3(url: str, home: Path) -> RunPaths:
    """The folder of a run in a bucket, brought under `home`. Raises: as `bring`; ConfigError when it is no such URL."""
    from gradmux.lambda_worker.contract import cancelled_epoch
    from gradmux.orchestrator.store import open_bucket

    found = re.fullmatch(r"s3://([^/]+)/runs/([^/]+)/?", url)
    if found is None:
        raise ConfigError(f"{url}: a run in S3 is s3://BUCKET/runs/NAME")
    store, keys = open_bucket(found[1]), Keys(found[2])
    try:
        cancelled = cancelled_epoch(store.get(keys.cancel)) if store.exists(keys.cancel) else NEVER
        return bring(store, keys, home, cancelled)
    finally:
        store.close()


def bring(store: Store, keys: Keys, home: Path, cancelled: int = NEVER, disk: Disk = DISK) -> RunPaths:
    """The run's folder under `home`, as new as in the store. `cancelled`: the last life that was cancelled.

    A folder that is there already is kept when no other machine has gone on with the run; else it is brought up to
    date. Raises: ConfigError when the store has no such run, RunBusy while a process here runs it.
    """
    newest = last_claimed(store, keys)
    if newest == NEVER:
        raise ConfigError(f"there is no run under {keys.prefix} in this bucket that could be resumed")
    paths = _local(home, keys.run)
    if paths is None:
        paths = create_run(home, _job_name(store, keys), lambda made: _bring_files(store, keys, made, disk), disk)
    elif is_held(paths.lock):
        raise RunBusy(f"{paths.run} runs on this machine: `gradmux status {paths.run}`")
    known = last_life(paths)
    if known is None or known.token.encode() not in store.get(keys.folder(_life_name(newest))):
        _bring_progress(store, keys, paths, newest, disk)
    if store.exists(keys.folder("result.json")) and not paths.result.exists():
        _bring_result(store, keys, paths, disk)
    if cancelled > NEVER:
        request_cancel(paths, cancelled, disk)
    return paths


def _local(home: Path, store_name: str) -> RunPaths | None:
    """The folder of this very run, if there is one here."""
    named = (paths for paths in all_runs(home) if paths.store_name.exists())
    return next((paths for paths in named if paths.store_name.read_bytes() == store_name.encode()), None)


def _bring_files(store: Store, keys: Keys, paths: RunPaths, disk: Disk) -> None:
    disk.make_folder(paths.materials)
    for key in store.list(keys.folder("")):
        name = key.removeprefix(keys.folder(""))
        if name in ("job.json", "store-name") or re.fullmatch(r"materials(/[\w-][\w.-]*)+", name):
            disk.make_folder((paths.folder / name).parent)
            write_whole(paths.folder / name, [store.get(key)], disk)


def _bring_progress(store: Store, keys: Keys, paths: RunPaths, epoch: int, disk: Disk) -> None:
    """Job, record, checkpoints and the life that began last; what is there of them gives way."""
    write_whole(paths.job, [store.get(keys.folder(paths.job.name))], disk)
    write_whole(paths.record, _record(store, keys), disk)
    disk.make_folder(paths.checkpoints)
    for path in Checkpoints(paths.checkpoints).files():
        disk.remove(path)
    for key in _checkpoint_keys(store, keys):
        write_whole(paths.checkpoints / key.rpartition("/")[2], [store.get(key)], disk)
    write_whole(paths.life, [store.get(keys.folder(_life_name(epoch)))], disk)


def _bring_result(store: Store, keys: Keys, paths: RunPaths, disk: Disk) -> None:
    """Weights and result of a run that is done; the result names the files here."""
    disk.make_folder(paths.weights("").parent)
    result = json.loads(store.get(keys.folder("result.json")))
    for model in result["models"]:
        path = paths.weights(model["name"])
        write_whole(path, [store.get(keys.folder(f"weights/{path.name}"))], disk)
        model["checkpoint"] = str(path)
    write_whole(paths.result, [json.dumps({**result, "record": str(paths.record)}, indent=2).encode()], disk)


def _job_name(store: Store, keys: Keys) -> str:
    try:
        return str(json.loads(store.get(keys.folder("job.json")))["name"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{keys.folder('job.json')} in this bucket does not describe a job") from error


def _record(store: Store, keys: Keys) -> Iterator[bytes]:
    """The pieces in order."""
    for key in _pieces(store, keys):
        yield store.get(key)


def _pieces(store: Store, keys: Keys) -> list[str]:
    """Keys of the pieces that follow from one another; where two lives wrote from one place on, the later one's."""
    newest = {_place(key)[0]: key for key in sorted(store.list(keys.folder("record/")), key=lambda k: _place(k)[2])}
    found, offset = [], f"{0:012d}"
    while offset in newest:
        found.append(newest[offset])
        offset = _place(newest[offset])[1]
    return found


def _place(key: str) -> tuple[str, str, str]:
    """(from, to, epoch) of a piece, as texts that can be compared."""
    match = PIECE.fullmatch(key.rpartition("/")[2])
    return (match[1], match[2], match[3]) if match else ("", "", "")


def _checkpoint_keys(store: Store, keys: Keys) -> list[str]:
    """Oldest first."""
    found = store.list(keys.checkpoint(""))
    return sorted(key for key in found if NAME.fullmatch(key.rpartition("/")[2]))


def _life_name(epoch: int) -> str:
    return f"lives/{epoch:06d}"
