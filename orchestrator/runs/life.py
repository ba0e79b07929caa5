"""The lives of a run: each process that runs it begins a new one, with a number (the epoch) that no other life had.

The number is on disk before anything is invoked, goes into every request, and comes back in every answer: what a
former life asked for is told apart, and a cancelled life's workers do not compute. Read next: `play.py`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gradmux.orchestrator.backends import PlaceNote
from gradmux.orchestrator.disk import DISK, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError, GradmuxError
from gradmux.orchestrator.runs.last_words import make_room, say
from gradmux.orchestrator.runs.lock import RunBusy, only_process
from gradmux.orchestrator.runs.paths import RunPaths

NEVER = -1
"""the epoch before the first"""
MOST_LIVES = 999_998
"""the last epoch that a run may come to: names of files have six digits for it"""
TEXT_CHARACTERS = 255
"""of what a life says of itself: a host's name, an instant, a token"""


class FolderError(GradmuxError):
    """A file in the folder of a run is damaged: which one, and what can be done. Nothing was invoked."""

    exit_code = ConfigError.exit_code


@dataclass(frozen=True, slots=True)
class Life:
    """One process that runs, or ran, the run."""

    epoch: int
    pid: int
    """for people only: whether it lives is what the lock says"""
    host: str
    started: str
    """UTC, ISO 8601"""
    place: PlaceNote | None = None
    """None: it has no workers yet"""
    token: str = ""
    """that of no other life, on any machine"""


def new_store_name(job: str) -> str:
    """A name for a run of this job that no other run has, on any machine."""
    return f"{job}-{secrets.token_hex(5)}"


def store_name(paths: RunPaths) -> str:
    """What the run is called in the object store. Raises FolderError when that is not known any more."""
    from gradmux.orchestrator.store import RUN_NAME  # slow to import; `list` needs none of it

    try:
        name = paths.store_name.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(paths.store_name) from error
    if not RUN_NAME.fullmatch(name):
        raise _damaged(paths.store_name)
    return name


def last_life(paths: RunPaths) -> Life | None:
    """The life that began last; None when there was none. Raises FolderError for a damaged file."""
    fields = _read(paths.life)
    if fields is None:
        return None
    try:
        return parse_life(fields)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise _damaged(paths.life) from error


def parse_life(fields: Mapping[str, Any]) -> Life:
    """A life out of JSON. Raises: AttributeError, TypeError, KeyError, ValueError."""
    place = None if fields["place"] is None else PlaceNote.of(fields["place"])
    life = Life(**{**fields, "place": place})
    _require_epoch(life.epoch)
    if type(life.pid) is not int or life.pid < 0:
        raise ValueError("pid must be a whole number")
    for text in (life.host, life.started, life.token):
        if not isinstance(text, str) or not text.isprintable() or len(text) > TEXT_CHARACTERS:
            raise ValueError("host, started and token must be short texts")
    return life


def _require_epoch(epoch: object, least: int = 0) -> None:
    if type(epoch) is not int or not least <= epoch <= MOST_LIVES:
        raise ValueError(f"epoch must be a whole number from {least} to {MOST_LIVES}")


def cancelled_epoch(paths: RunPaths) -> int:
    """The last life that somebody cancelled; NEVER when there is none. Raises FolderError for a damaged file."""
    fields = _read(paths.cancel)
    try:
        if fields is None:
            return NEVER
        _require_epoch(fields["epoch"], NEVER)
        return int(fields["epoch"])
    except (TypeError, KeyError, ValueError) as error:
        raise _damaged(paths.cancel) from error


def request_cancel(paths: RunPaths, epoch: int, disk: Disk = DISK) -> None:
    """From now on this life, and all before it, are to end."""
    fields = {"epoch": max(epoch, cancelled_epoch(paths)), "at": _now()}
    write_whole(paths.cancel, [json.dumps(fields).encode()], disk)


def next_epoch(paths: RunPaths) -> int:
    """The number of a life that would begin now: larger than that of every life that began or was cancelled."""
    last = last_life(paths)
    return 1 + max(NEVER if last is None else last.epoch, cancelled_epoch(paths))


@contextmanager
def living(paths: RunPaths, epoch: int | None = None, disk: Disk = DISK) -> Iterator[Life]:
    """A new life of the run, for as long as the context is open. `epoch` None: `next_epoch`.

    Raises: RunBusy while another process runs it, or when a life with this number has begun already.
    """
    with only_process(paths.lock, paths.run):
        last = last_life(paths)
        number = next_epoch(paths) if epoch is None else epoch
        if last is not None and last.epoch >= number:
            raise RunBusy(f"{paths.run} has been resumed by another process since")
        life = Life(number, os.getpid(), socket.gethostname(), _now(), token=secrets.token_hex(8))
        _write(paths, life, disk)
        make_room(paths.last_words, disk)
        try:
            yield life
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            say(paths.last_words, number, error)
            raise


def settle(paths: RunPaths, life: Life, place: PlaceNote, disk: Disk = DISK) -> None:
    """Tells other processes where the workers of this life are."""
    _write(paths, replace(life, place=place), disk)


def _write(paths: RunPaths, life: Life, disk: Disk) -> None:
    write_whole(paths.life, [json.dumps(asdict(life)).encode()], disk)


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path) from error
    if not isinstance(fields, dict):
        raise _damaged(path)
    return fields


def _damaged(path: Path) -> FolderError:
    return FolderError(f"{path} cannot be read: restore the file, or submit the job again")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
