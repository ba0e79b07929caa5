"""However a command is ended in the middle of its work, nothing of it stays behind, and a run's models are saved.

Ctrl-C reaches the whole process group, `kill` one process; a terminal that is closed takes stderr with it; an emulator
may die alone.
"""

from __future__ import annotations

import json
import os
import pty
import signal
from pathlib import Path
from typing import Any

import pytest

from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import State, status_of
from tests.commands.command_line import CommandLine, Running, wait_until
from tests.end_to_end.test_bad_input import JOB, MODELS

RESUMABLE, INTERRUPTED = 5, 130
SLOW = '\n[emulator]\ndelays = "lambda-like"\ntime_scale = 0.05\n'


@pytest.fixture
def shell(tmp_path: Path) -> CommandLine:
    """In a folder with a job that takes its time."""
    (tmp_path / "job.toml").write_text(JOB.replace("steps = 3", "steps = 500") + SLOW)
    (tmp_path / "small_models.py").write_text(MODELS)
    return CommandLine(tmp_path)


def rounds(shell: CommandLine) -> int:
    """Lines in the records of all runs, but the first of each."""
    return sum(path.read_text().count("\n") - 1 for path in shell.home.glob("runs/*/record.jsonl"))


def last_line(shell: CommandLine) -> dict[str, Any]:
    """Of the newest record."""
    newest = max(shell.home.glob("runs/*/record.jsonl"), key=lambda path: path.stat().st_mtime)
    line: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
    return line


def assert_saved(shell: CommandLine, reason: str) -> None:
    end = last_line(shell)
    assert (end["kind"], end["state"]) == ("end", "stopped")
    assert reason in end["reason"]
    assert list(shell.home.glob("runs/small-1/checkpoints/*.zip"))


def mid_run(shell: CommandLine, running: Running, more: int = 2) -> None:
    """Waits until workers compute."""
    wait_until(lambda: rounds(shell) >= more or running.process.poll() is not None)
    assert running.process.poll() is None, running.told()
    assert len(running.processes()) > 6, "itself, server, moto, zygote, workers"


@pytest.mark.parametrize(
    ("number", "to_group", "fresh"),
    [
        (signal.SIGINT, True, True),
        (signal.SIGINT, False, False),
        (signal.SIGTERM, True, False),
        (signal.SIGTERM, False, False),
        (signal.SIGHUP, False, False),
    ],
    ids=["Ctrl-C", "kill -INT", "SIGTERM to the group", "kill", "SIGHUP"],
)
def test_a_run_that_is_asked_to_end(shell: CommandLine, number: signal.Signals, to_group: bool, fresh: bool) -> None:
    with shell.start(["submit", "job.toml", "--json"], fresh=fresh) as running:
        mid_run(shell, running)
        running.send(number, to_group=to_group)
        ended = running.end()
    assert ended.code == RESUMABLE, ended.err
    told = ended.err.splitlines()[-1]
    assert told == ("gradmux: interrupted" if number is signal.SIGINT else f"gradmux: ended by {number.name}")
    assert json.loads(ended.out) == {"error": told.removeprefix("gradmux: "), "exit_code": RESUMABLE}
    assert_saved(shell, told.removeprefix("gradmux: "))


def test_ctrl_c_twice_leaves_at_once(shell: CommandLine) -> None:
    with shell.start(["submit", "job.toml"]) as running:
        mid_run(shell, running)
        running.send(signal.SIGINT, to_group=True)
        running.send(signal.SIGINT, to_group=True)
        ended = running.end()
    assert ended.code in (RESUMABLE, INTERRUPTED)
    assert "Traceback" not in ended.err
    assert status_of(RunPaths(shell.home / "runs" / "small-1")).state in (State.STOPPED, State.INTERRUPTED)


def test_kill_9_takes_everything_with_it(shell: CommandLine) -> None:
    with shell.start(["submit", "job.toml"]) as running:
        mid_run(shell, running)
        running.process.kill()
        assert running.end().code == -signal.SIGKILL


def test_a_closed_terminal_is_no_accident(shell: CommandLine) -> None:
    """The run says that it stops, to nobody, and stops in order."""
    ours, theirs = pty.openpty()
    with shell.start(["submit", "job.toml"], stderr=theirs) as running:
        os.close(theirs)
        wait_until(lambda: bool(os.read(ours, 4096)) and rounds(shell) >= 2)
        os.close(ours)
        running.send(signal.SIGHUP, to_group=True)
        assert running.end().code == RESUMABLE
    assert_saved(shell, "ended by SIGHUP")


@pytest.mark.parametrize("part", ["server", "s3"])
def test_a_run_whose_emulator_dies_stops_in_one_line(shell: CommandLine, part: str) -> None:
    with shell.start(["submit", "job.toml", "-q"]) as running:
        mid_run(shell, running)
        victims = [each for each in running.processes() if f"gradmux.infra.local.{part}" in each.cmdline()]
        assert victims
        victims[0].kill()
        ended = running.end()
    assert ended.code == RESUMABLE
    (line,) = ended.err.splitlines()
    assert line.startswith("gradmux: the emulator is gone (")
    assert line.endswith("; `gradmux resume small-1` goes on")
    assert_saved(shell, "the emulator is gone")


def test_ctrl_c_while_the_emulator_starts(shell: CommandLine) -> None:
    with shell.start(["submit", "job.toml"], fresh=True) as running:
        wait_until(lambda: len(running.processes()) >= 2)
        running.send(signal.SIGINT, to_group=True)
        ended = running.end()
    assert ended.code in (INTERRUPTED, RESUMABLE)
    assert "Traceback" not in ended.err


def test_the_demo_in_the_middle(shell: CommandLine) -> None:
    with shell.start(["demo", "--quick"]) as running:
        mid_run(shell, running)
        running.send(signal.SIGINT, to_group=True)
        ended = running.end()
    assert ended.code == RESUMABLE
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1] == "gradmux: interrupted"
    assert ended.out == ""


def test_two_runs_at_once_are_two_runs(shell: CommandLine) -> None:
    """Same folder, same name, same home: two numbers, two emulators, and both train to the end."""
    few = ["--set", "training.steps=3"]
    with (
        shell.start(["submit", "job.toml", "--json", *few]) as one,
        shell.start(["submit", "job.toml", "--json", *few]) as two,
    ):
        told = [json.loads(assert_done(running)) for running in (one, two)]
    assert {each["run"] for each in told} == {"small-1", "small-2"}
    losses = [[model["train_loss"] for model in each["models"]] for each in told]
    assert losses[0] == losses[1]


def assert_done(running: Running) -> str:
    ended = running.end()
    assert ended.code == 0, ended.err
    return ended.out
