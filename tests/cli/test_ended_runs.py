"""Commands on a run that is done, or whose folder lacks a file, say so, and nothing beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Gradmux

RESULT = {
    "run": "small-1",
    "scheme": "gc",
    "params": {"stragglers": 1},
    "workers": 4,
    "rounds": 3,
    "wall_s": 1.5,
    "models": [{"name": "a", "steps": 3, "train_loss": 0.25, "eval": {}, "checkpoint": "weights/a.safetensors"}],
    "cost": {"billed_s": 2.0, "invocations": 12},
    "decode": {"max_residual": 0.0, "max_amplification": 1.0},
    "record": "record.jsonl",
}


@pytest.fixture
def done(home: Path) -> Path:
    folder = home / "runs" / "small-1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"name": "small", "scheme": {"name": "gc"}}))
    (folder / "result.json").write_text(json.dumps(RESULT))
    return folder


@pytest.mark.usefixtures("done")
def test_a_run_that_is_done_is_not_cancelled(gradmux: Gradmux) -> None:
    told = gradmux("cancel", "small-1")
    assert (told.code, told.out, told.err) == (0, "small-1 is done: there is nothing to cancel\n", "")


@pytest.mark.usefixtures("done")
def test_a_run_that_is_done_is_not_resumed(gradmux: Gradmux) -> None:
    told = gradmux("resume", "small-1")
    assert (told.code, told.err) == (0, "small-1 is done already; this is what it came to\n")
    assert told.out == gradmux("results", "small-1").out
    quiet = gradmux("resume", "small-1", "--quiet", "--json")
    assert (quiet.err, quiet.document) == ("", RESULT)


@pytest.mark.parametrize("command", ["status", "resume", "cancel", "results", "cost"])
def test_a_run_without_its_job_is_told_apart_from_no_run(gradmux: Gradmux, done: Path, command: str) -> None:
    (done / "job.json").unlink()
    told = gradmux(command, "small-1")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert f"{done} holds no job.json, which says what was submitted: restore it, or submit again" in told.err
