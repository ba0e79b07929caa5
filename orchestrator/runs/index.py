"""The index of all runs under one home: what each was like when it was last looked at, in SQLite.

Reading the record of every run takes time, so runs that nobody runs are read again only when one of their files has
changed. The folders are the truth: an index that is lost or damaged is made anew from them, and where none can be kept
(a full disk, a home that only others may write) they are read without one. Knows no backend. Read next: `status.py`.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from gradmux.orchestrator.disk import make_private, private_opener
from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.runs.lock import is_held
from gradmux.orchestrator.runs.paths import RunPaths, all_runs
from gradmux.orchestrator.runs.status import RunStatus, status_of

log = logging.getLogger(__name__)

MIGRATIONS: Sequence[str] = (
    """
    CREATE TABLE runs (
        run       TEXT PRIMARY KEY,
        signature TEXT NOT NULL,  -- sizes and times of its files when it was looked at
        status    TEXT NOT NULL   -- JSON: RunStatus.to_dict
    ) STRICT
    """,
)
"""Statement n brings an index of version n to version n + 1 (PRAGMA user_version). Never changed, only added to."""
BUSY_S = 10.0
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""What SQLite says of a file that is no index of ours; a lock, a full disk or a lack of rights is no damage."""


class IndexTooNew(GradmuxError):
    """A newer gradmux has written the index."""


def statuses(home: Path) -> list[RunStatus]:
    """Every run under `home`, by name. Raises IndexTooNew."""
    runs = all_runs(home)
    if not runs and not index_file(home).exists():
        return []
    try:
        return _looked_up(index_file(home), runs)
    except (sqlite3.Error, OSError) as error:
        log.info("%s cannot be used (%s): the folders are read without it", index_file(home), error)
        if _is_damage(error):
            _put_aside(index_file(home))
    return [status_of(paths) for paths in runs]


def _looked_up(path: Path, runs: Sequence[RunPaths]) -> list[RunStatus]:
    """The same, with what the index knows already. Raises sqlite3.Error, OSError."""
    with opened_index(path) as index:
        known = {run: (signature, status) for run, signature, status in index.execute("SELECT * FROM runs")}
        found = {paths.run: _look(paths, *known.get(paths.run, ("", ""))) for paths in runs}
        fresh = [(run, *entry) for run, (*entry, _) in found.items() if tuple(entry) != known.get(run)]
        with index:
            index.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", fresh)
            index.executemany("DELETE FROM runs WHERE run = ?", [(run,) for run in known.keys() - found.keys()])
    return [status for *_, status in found.values()]


def index_file(home: Path) -> Path:
    """Where the index lies."""
    return home / "runs.db"


@contextmanager
def opened_index(path: Path, migrations: Sequence[str] = MIGRATIONS) -> Iterator[sqlite3.Connection]:
    """The index, brought to the newest version; a damaged one is put aside and begun anew.

    Raises: IndexTooNew; sqlite3.Error or OSError where no index can be kept.
    """
    try:
        index = _open(path, migrations)
    except sqlite3.Error as error:
        if not _is_damage(error):
            raise
        _put_aside(path)
        index = _open(path, migrations)
    with closing(index):
        yield index


def _is_damage(error: Exception) -> bool:
    """Extended codes hold the primary one in their lowest byte."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in DAMAGE


def _put_aside(path: Path) -> None:
    with suppress(OSError):
        path.replace(path.with_suffix(".damaged"))


def _open(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    make_private(path.parent)
    if os.access(path if path.exists() else path.parent, os.W_OK):
        os.close(private_opener(str(path), os.O_RDWR | os.O_CREAT))  # SQLite gives its other files the same mode
    index = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        index.execute("PRAGMA journal_mode = WAL")
        index.execute("PRAGMA synchronous = NORMAL")
        _migrate(index, path, migrations)
        index.execute("SELECT run, signature, status FROM runs LIMIT 1").fetchall()
    except BaseException:
        index.close()
        raise
    return index


def _migrate(index: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    """One at a time: two processes may open an old index at once."""
    index.execute("BEGIN IMMEDIATE")
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        index.execute("ROLLBACK")
        raise IndexTooNew(
            f"{path} was written by a newer gradmux (version {version}, this one knows {len(migrations)}): "
            "upgrade, or remove the file, which is made anew from the runs' folders"
        )
    for statement in migrations[version:]:
        index.execute(statement)
    index.execute(f"PRAGMA user_version = {len(migrations)}")
    index.execute("COMMIT")


def _look(paths: RunPaths, signature: str, known: str) -> tuple[str, str, RunStatus]:
    """Signature, status as JSON, and the status: as it was when nothing has changed, else read anew."""
    held = is_held(paths.lock)
    now = f"{held} {_signature(paths)}"
    if now == signature and not held:
        try:
            return signature, known, RunStatus.from_dict(json.loads(known))
        except (ValueError, TypeError, KeyError):
            pass  # an entry of another version: read anew
    status = status_of(paths)
    return now, json.dumps(status.to_dict()), status


def _signature(paths: RunPaths) -> str:
    files = (paths.job, paths.life, paths.record, paths.cancel, paths.result)
    return f"{paths.folder} " + " ".join(map(_stamp, files))


def _stamp(path: Path) -> str:
    try:
        stat = path.stat()
    except OSError:
        return "-"
    return f"{stat.st_size}@{stat.st_mtime_ns}"
