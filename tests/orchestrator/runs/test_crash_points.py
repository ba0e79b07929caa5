"""A process that dies at any write of a run's files, or a machine that loses its power there: the run goes on, and its
weights are those of a run that was never disturbed, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gradmux.orchestrator.runs.paths import RunPaths, all_runs
from gradmux.orchestrator.runs.status import State, status_of
from tests.orchestrator.runs.bench import SmallJob, check_record
from tests.orchestrator.runs.disks import Died, DyingDisk, PowerlessDisk

JOBS = {
    "gc": SmallJob(steps=4),
    "m-sgc": SmallJob("m-sgc", {"B": 1, "W": 2, "lambda": 2}, models=3, steps=3),
    "sr-sgc": SmallJob("sr-sgc", {"B": 1, "W": 2, "lambda": 3}, models=2, steps=4),
    "pipeline": SmallJob("pipeline", {"n": 4, "s": 1}, workers=4, models=3, steps=4),
}


def undisturbed(job: SmallJob, home: Path) -> tuple[list[str], int]:
    """The final weights, and how many calls persisted something."""
    disk = DyingDisk()
    paths = job.submit(home)
    return job.live(paths, disk), disk.calls


def die_and_go_on(job: SmallJob, home: Path, disk: DyingDisk) -> tuple[RunPaths, list[str]]:
    """A life that dies at the disk's chosen call, and as many more as it takes."""
    paths = job.submit(home)
    with pytest.raises(Died):
        job.live(paths, disk)
    state = status_of(paths).state
    assert state is State.DONE or state.resumable, f"{state} has no way out"
    return paths, job.live(paths)


@pytest.mark.parametrize(
    ("name", "kind"), [("gc", "before"), ("pipeline", "torn"), *((name, "power") for name in JOBS)]
)
def test_every_crash_point_of_a_life(name: str, kind: str, tmp_path: Path) -> None:
    job = JOBS[name]
    expected, calls = undisturbed(job, tmp_path / "undisturbed")
    assert calls > 60
    for at in range(1, calls + 1):
        disk = PowerlessDisk(at) if kind == "power" else DyingDisk(at, torn=kind == "torn")
        paths, weights = die_and_go_on(job, tmp_path / str(at), disk)
        assert weights == expected, f"died at call {at} of {calls}"
        check_record(paths, job)
        assert status_of(paths).state is State.DONE


def test_lives_that_all_die_still_come_to_an_end(tmp_path: Path) -> None:
    """Each is given as long as it takes to save once more: what was saved is never lost again."""
    job = replace(JOBS["pipeline"], steps=10)
    expected, _ = undisturbed(job, tmp_path / "undisturbed")
    paths, lives = job.submit(tmp_path), 0
    while True:
        lives += 1
        assert lives < 30, "no life gets any further"
        try:
            weights = job.live(paths, DyingDisk(at=55))
        except Died:
            continue
        break
    assert lives > 2
    assert weights == expected
    check_record(paths, job)


@pytest.mark.parametrize("kind", ["before", "torn", "power"])
def test_every_crash_point_of_a_submission_leaves_a_whole_run_or_none(kind: str, tmp_path: Path) -> None:
    counting = DyingDisk()
    JOBS["gc"].submit(tmp_path / "undisturbed", counting)
    for at in range(1, counting.calls + 1):
        home = tmp_path / str(at)
        disk = PowerlessDisk(at) if kind == "power" else DyingDisk(at, torn=kind == "torn")
        with pytest.raises(Died):
            JOBS["gc"].submit(home, disk)
        left = all_runs(home)
        assert [status_of(paths).state for paths in left] in ([], [State.CREATED])
        again = JOBS["gc"].submit(home)
        assert again.run == f"small-{len(left) + 1}"
