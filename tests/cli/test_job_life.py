"""The commands of job life, over processes of their own: detached, watched, killed, resumed, cancelled, interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.torch import load_file

from gradmux.infra.local.section import EmulatorSection
from gradmux.orchestrator.delays.formats import save_profile
from gradmux.orchestrator.delays.profile import DelayProfile
from gradmux.orchestrator.job_file import load_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.keep import keep_job, prepare_again, set_limits
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.runs.status import status_of
from gradmux.orchestrator.store import MemoryStore
from tests.cli.conftest import BUCKET, Gradmux
from tests.cli.test_submit import JOB, MODELS
from tests.commands.command_line import PATIENCE_S, wait_until

TRAINING = "training={steps=24, checkpoint_every=2}"
PACED = ["--set", "emulator={delays='lambda-like', time_scale=0.05}", "--set", TRAINING]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "small_models.py").write_text(MODELS)
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


@contextmanager
def detached(gradmux: Gradmux, *words: str | Path) -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    """What a command with --detach says, and its process; whatever that has started is dead in the end."""
    ran = gradmux(*words, "--detach", "--json")
    assert ran.code == 0, ran.err
    process = psutil.Process(ran.document["pid"])
    try:
        yield ran.document, process
    finally:
        family = [process, *process.children(recursive=True)] if process.is_running() else []
        for each in family:
            each.kill()
        psutil.wait_procs(family, timeout=PATIENCE_S)


def rounds(home: Path, run: str = "small-1") -> int:
    return status_of(RunPaths(home / "runs" / run)).rounds


def test_a_detached_run_is_cancelled_and_killed_and_goes_on_elsewhere_without_the_job_file(
    gradmux: Gradmux, job: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_job(load_job(job, [TRAINING]), Materials(), job.parent, lambda bucket: MemoryStore())
    with detached(gradmux, "submit", job, *PACED) as (started, process):
        assert (started["run"], started["state"]) == ("small-1", "running")
        assert "-P" in process.cmdline(), "the working directory is not on its path"
        assert os.getsid(process.pid) == process.pid, "no terminal can take it along"
        wait_until(lambda: rounds(home) > 8)
        busy = gradmux("resume", "small-1")
        assert (busy.code, len(busy.err.splitlines())) == (1, 1)
        assert "run by another process" in busy.err
        early = gradmux("results", "small-1")
        assert early.code == 1
        assert "has no results yet: it is running" in early.err
        family = [process, *process.children(recursive=True)]
        told = gradmux("cancel", "small-1", "--json").document
        assert (told["state"], told["workers_told"], told["in_flight"]) == ("cancelled", True, 0)
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert alive == []
    status = gradmux("status", "small-1", "--json").document
    assert (status["state"], status["resumable"], status["in_flight"]) == ("cancelled", True, 0)
    assert "small-1 is cancelled; nothing is in flight" in gradmux("cancel", "small-1").out

    shutil.rmtree(job.parent)
    with detached(gradmux, "resume", "small-1") as (_, process):
        wait_until(lambda: rounds(home) > status["rounds"] + 5)
        family = [process, *process.children(recursive=True)]
        process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert alive == [], "the emulator ends with its orchestrator"

    (listed,) = gradmux("list", "--json").document["runs"]
    assert (listed["state"], listed["resumable"]) == ("interrupted", True)
    assert 0 < listed["share"] < 1
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    ran = gradmux("resume", "small-1", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["state"] == "done"
    assert Reference.of(prepared).modules.keys() == {model["name"] for model in ran.document["models"]}
    assert Reference.of(prepared).difference(_loaded(ran.document, prepared)) < 1e-5

    assert gradmux("results", "small-1", "--json").document == ran.document
    assert gradmux("resume", "small-1", "--json").document == ran.document, "what is done is told again"
    (listed,) = gradmux("list", "--json").document["runs"]
    assert (listed["state"], listed["lives"], listed["share"]) == ("done", 3, 1.0)
    cost = gradmux("cost", "small-1", "--json").document
    assert len(cost["lives"]) == 3
    assert cost["total"]["billed_s"] == pytest.approx(sum(life["billed_s"] for life in cost["lives"]))
    assert cost["total"]["billed_s"] == pytest.approx(ran.document["cost"]["billed_s"])
    assert sum(model["billed_s"] for model in cost["models"]) == pytest.approx(cost["total"]["billed_s"])
    assert sum(part["billed_s"] for part in cost["rounds"]) == pytest.approx(cost["total"]["billed_s"])
    lines = gradmux("logs", "small-1", "--json").document["lines"]
    assert sum("life" in line and "begins with job" in line for line in lines) == 3
    assert "small-1" in gradmux("status", "small-1").out
    assert "USD" in gradmux("cost", "small-1", "--rounds").out
    assert "done" in gradmux("logs", "small-1", "-f").out


def _loaded(document: dict[str, Any], prepared: Any) -> dict[str, Any]:
    """The saved weights in modules of their own."""
    from gradmux.orchestrator.training.models import prepare

    modules = {plan.name: prepare(plan).module for plan in prepared.models}
    for model in document["models"]:
        modules[model["name"]].load_state_dict(load_file(model["checkpoint"]))
    return modules


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "resume", "results", "cost", "replay-task"])
def test_a_run_that_is_not_there_is_one_line(gradmux: Gradmux, command: str) -> None:
    ran = gradmux(command, "digits-7")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "there is no run 'digits-7'" in ran.err
    assert gradmux(command, "digits-7", "--json").document["exit_code"] == 2


def test_no_runs_yet(gradmux: Gradmux, home: Path) -> None:
    assert "There are no runs" in gradmux("list").out
    assert gradmux("list", "--json").document == {"home": str(home), "runs": []}
    assert not home.exists()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("crash", "--faults crash: must be KIND=RATE"),
        ("crash=2", "must be KIND=RATE with a rate from 0 to 1"),
        ("earthquake=0.1", "there is no kind 'earthquake'; kinds: crash"),
        ("crash=0.7,oom=0.7", "at most 1 together"),
    ],
)
def test_wrong_faults_are_one_line_before_anything_starts(
    gradmux: Gradmux, job: Path, home: Path, faults: str, message: str
) -> None:
    ran = gradmux("submit", job, "--faults", faults)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert message in ran.err
    assert not home.exists()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("emulator.faults.earthquake=0.1", "there is no kind 'earthquake'; kinds: crash"),
        ("emulator.faults={crash=0.7, oom=0.7}", "at most 1 together"),
        ("emulator.delays=nowhere.npz", "nowhere.npz: is neither a profile file nor a generator"),
    ],
)
def test_an_emulator_that_cannot_be_leaves_no_run(
    gradmux: Gradmux, job: Path, home: Path, setting: str, message: str, dry: list[str]
) -> None:
    ran = gradmux("submit", job, "--set", setting, *dry)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert message in ran.err
    assert not home.exists()


def test_a_profile_of_delays_lies_beside_the_job_file(gradmux: Gradmux, job: Path, home: Path) -> None:
    save_profile(DelayProfile(np.full((2, 4), 0.01)), job.parent / "delays.npz")
    prepared = prepare_job(
        load_job(job, ["emulator.delays=delays.npz"]), Materials(), job.parent, lambda bucket: MemoryStore()
    )
    assert prepared.config.section("emulator", EmulatorSection).delays == str((job.parent / "delays.npz").resolve())


@pytest.mark.usefixtures("account")
def test_somebody_elses_job_or_run_is_warned_of_before_its_code_runs(gradmux: Gradmux, job: Path, home: Path) -> None:
    job.write_text(JOB.replace("[cluster]", f'[cluster]\nbackend = "aws"\nbucket = "{BUCKET}"'))
    (job.parent / "small_models.py").chmod(0o666)
    warned = gradmux("submit", job, "--set", "training.steps=1", "--set", 'scheme={name="gc", s=1}', "--json")
    warning = "gradmux: warning: {path} may be changed by everybody: its code runs with your credentials, read it first"
    assert warning.format(path=job.parent / "small_models.py") in warned.err
    assert warned.document["state"] == "done"
    (home / "runs" / "small-1" / "result.json").unlink()
    assert "warning" not in gradmux("resume", "small-1").err
    materials = home / "runs" / "small-1" / "materials" / "materials.json"
    materials.chmod(0o666)
    (home / "runs" / "small-1" / "result.json").unlink()
    assert warning.format(path=materials) in gradmux("resume", "small-1", "-q").err


def test_a_detached_run_that_cannot_begin_says_why(gradmux: Gradmux, job: Path, home: Path) -> None:
    prepared = prepare_job(load_job(job), Materials(), job.parent, lambda bucket: MemoryStore())
    keep_job(prepared, home, job.parent)
    (home / "runs" / "small-1" / "materials" / "materials.json").write_text("{}")
    ran = gradmux("resume", "small-1", "--detach")
    assert ran.code == 2
    assert "materials.json cannot be read: restore the file, or submit the job again" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_job_that_was_edited_is_warned_of(job: Path, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepared = prepare_job(load_job(job), Materials(), job.parent, lambda bucket: MemoryStore())
    paths = keep_job(prepared, home, job.parent)
    set_limits(paths, 7.5, 30.0)
    prepare_again(paths)
    assert caplog.text == "", "limits may be changed"
    paths.job.write_text(paths.job.read_text().replace('"seed": 0', '"seed": 1', 1))
    again = prepare_again(paths)
    assert f"{paths.job} is not what was submitted: the run goes on as the file says now" in caplog.text
    assert (again.config.training.seed, again.config.cluster.max_cost_usd) == (1, 7.5)


def test_the_index_is_made_anew_from_the_folders(gradmux: Gradmux, home: Path) -> None:
    folder = home / "runs" / "hand-1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"name": "hand", "scheme": {"name": "gc"}}))
    states = [(run["run"], run["state"]) for run in gradmux("list", "--json").document["runs"]]
    assert states == [("hand-1", "created")]
    (home / "runs.db").write_bytes(b"not a database at all, but long enough to be taken for one" * 20)
    assert [run["run"] for run in gradmux("list", "--json").document["runs"]] == ["hand-1"]
    with sqlite3.connect(home / "runs.db") as index:
        index.execute("PRAGMA user_version = 99")
    ran = gradmux("list")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "was written by a newer gradmux (version 99, this one knows 1)" in ran.err
    (home / "runs.db").unlink()
    (folder / "job.json").write_text("[]")
    (run,) = gradmux("list", "--json").document["runs"]
    assert (run["state"], run["resumable"]) == ("damaged", False)
    assert "does not describe a job" in run["reason"]
