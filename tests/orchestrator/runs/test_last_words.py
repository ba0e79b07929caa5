"""Why a life ended, where its record cannot say so: its disk was full, or it ended before it had one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradmux.orchestrator.disk import DiskError
from gradmux.orchestrator.errors import ConfigError, Interrupted, RunStopped
from gradmux.orchestrator.runs.last_words import LONGEST, ROOM_BYTES, last_words, say
from gradmux.orchestrator.runs.life import living
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import State, status_of
from tests.orchestrator.runs.bench import SmallJob
from tests.orchestrator.runs.disks import Died, FullDisk

JOB = SmallJob("uncoded", {}, failing=0.0, steps=20)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return JOB.submit(tmp_path)


@pytest.mark.parametrize("free", [4_000, 6_000, 9_000, 14_000])
def test_after_a_full_disk_the_status_says_so_and_the_run_goes_on(free: int, paths: RunPaths, tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="No space left"):
        JOB.live(paths, FullDisk(free))
    status = status_of(paths)
    assert status.state is State.STOPPED
    assert "No space left on device" in status.reason
    undisturbed = JOB.submit(tmp_path / "other")
    assert JOB.live(paths) == JOB.live(undisturbed)
    assert status_of(paths).state is State.DONE


def test_a_disk_that_was_full_before_the_life_is_named_too(paths: RunPaths) -> None:
    with pytest.raises(DiskError):
        JOB.live(paths, FullDisk(0))
    assert status_of(paths).state is State.CREATED, "no life has begun"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConfigError("no such thing"), State.FAILED),
        (RunStopped("two\nlines"), State.STOPPED),
        (Interrupted("ended by SIGTERM"), State.STOPPED),
        (ValueError("\N{SNOWMAN}" * 10_000), State.FAILED),
        (KeyboardInterrupt(), State.STOPPED),
    ],
)
def test_a_life_that_ends_before_it_has_a_record_says_why(error: BaseException, state: State, paths: RunPaths) -> None:
    with pytest.raises(type(error)), living(paths):
        raise error
    status = status_of(paths)
    assert status.state is state
    assert status.reason == (str(error).partition("\n")[0][:LONGEST] or "KeyboardInterrupt")
    assert "\n" not in status.reason
    assert paths.last_words.stat().st_size == ROOM_BYTES, "no room was needed for it"


def test_a_killed_process_leaves_no_words_and_those_of_former_lives_do_not_count(paths: RunPaths) -> None:
    with pytest.raises(ConfigError), living(paths):
        raise ConfigError("of the first life")
    with pytest.raises(Died), living(paths):
        raise Died
    assert status_of(paths).state is State.INTERRUPTED
    assert "without a word" in status_of(paths).reason


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b"{}", b'{"epoch": "x"}', b"\xff", b" " * ROOM_BYTES])
def test_words_that_cannot_be_read_are_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(content)
    assert last_words(tmp_path / "w") is None


def test_a_pipe_in_their_place_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w")
    say(tmp_path / "w", 0, ValueError("x"))
    assert last_words(tmp_path / "w") is None


def test_where_no_room_was_taken_nothing_is_said(tmp_path: Path) -> None:
    say(tmp_path / "w", 0, ValueError("x"))
    assert not (tmp_path / "w").exists()
