"""The index is a help and no more: whatever is wrong with it, the runs are told from their folders."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gradmux.orchestrator.runs import index
from gradmux.orchestrator.runs.index import index_file, statuses
from tests.orchestrator.runs.bench import SmallJob


@pytest.fixture
def home(tmp_path: Path) -> Path:
    SmallJob().submit(tmp_path)
    return tmp_path


def names(home: Path) -> list[str]:
    return [status.run for status in statuses(home)]


def is_whole(home: Path) -> bool:
    """Is the index in its place, and was none put aside?"""
    with closing(sqlite3.connect(index_file(home))) as opened:
        opened.execute("SELECT run FROM runs").fetchall()
    return not index_file(home).with_suffix(".damaged").exists()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_index_that_another_process_holds_is_no_damage(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses(home)
    monkeypatch.setattr(index, "BUSY_S", 0.0)
    SmallJob().submit(home)
    with closing(sqlite3.connect(index_file(home), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert names(home) == ["small-1", "small-2"]
    assert is_whole(home)


@pytest.mark.parametrize("known", [False, True])
def test_a_full_disk_is_no_damage(home: Path, known: bool) -> None:
    if known:
        statuses(home)
        SmallJob().submit(home)
    with full_disk():
        assert names(home) == ["small-1", "small-2"][: 1 + known]
    assert names(home) == ["small-1", "small-2"][: 1 + known]
    assert is_whole(home)


def test_where_no_index_can_be_made_the_folders_are_read(home: Path) -> None:
    index_file(home).mkdir()
    assert names(home) == ["small-1"]
    assert index_file(home).is_dir()


@pytest.mark.parametrize("content", [b"no database at all" * 400, b"SQLite format 3\0" + b"\xff" * 8192])
def test_a_damaged_index_is_put_aside_and_made_anew(home: Path, content: bytes) -> None:
    index_file(home).write_bytes(content)
    assert names(home) == ["small-1"]
    assert index_file(home).with_suffix(".damaged").read_bytes() == content
    with closing(sqlite3.connect(index_file(home))) as opened:
        assert opened.execute("SELECT run FROM runs").fetchall() == [("small-1",)]
