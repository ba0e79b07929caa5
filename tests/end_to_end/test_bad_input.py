"""What users get wrong, through the command line as a process: one clear line, the right exit code, nothing left over.

`tests/cli` tries many more mistakes in this process; here it counts what only a whole process shows: no traceback, no
process, no file of a run, and a stdout that is one JSON document or empty.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from tests.commands.command_line import CommandLine, Ended

JOB = """
name = "small"
[cluster]
workers = 6
[scheme]
name = "m-sgc"
B = 1
W = 2
lambda = 2
[data]
train = "digits:train"
batch_size = 96
[training]
steps = 3
[[models]]
name = "a"
factory = "small_models:mlp"
[[models]]
name = "b"
factory = "small_models:mlp"
"""
MODELS = """
import torch
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 10))

def raises():
    raise ValueError("no size\\nwas given")

def leaves():
    raise SystemExit(3)

def nan_loss(output, target):
    return (output * float("nan")).sum()

def nan_later(output, target):
    return nn.functional.cross_entropy(output, target, reduction="sum") * (1 if len(target) < 8 else float("nan"))

def refuses_later(output, target):
    import os
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        raise IndexError("too many for me")
    return nn.functional.cross_entropy(output, target, reduction="none")

def by_class(output, target):
    return output.sum(0)

def raising_loss(output, target):
    raise RuntimeError("no loss today")
"""
CONFIGURATION, PREFLIGHT, RESUMABLE = 2, 3, 5
MISTAKES = [
    ("scheme.name=m-gsc", "unknown scheme 'm-gsc' (did you mean 'm-sgc'?)"),
    ('scheme={name="sr-sgc", B=2, W=4, lambda=2}', "B (burst) = 2 does not divide W - 1 = 3"),
    ("scheme.lambda=7", "lambda (max_stragglers) = 7 does not fit 6 workers"),
    ("scheme.W=4", "m-sgc has delay T = 3 and so needs at least T + 1 = 4 models side by side, but this job has M = 2"),
    ("data.train=nowhere.npz", "nowhere.npz: no such file or folder"),
    ("data.train=words.npz", "words.npz: x: holds text (<U1), no numbers: turn it into numbers first"),
    ("data.train=junk.npz", "junk.npz: cannot be read"),
    ("data.train=narrow.npz", "model 'a' cannot be trained on x float32 (4, 5)"),
    ("data.train=holes.npz", "row 0 holds NaN"),
    ("data.train=eleventh.npz", "model 'a' cannot be trained on label 10 (row 10), has 10 outputs"),
    ("models.1.factory=small_models:raises", "model 'b': its factory raised ValueError: no size"),
    ("models.1.factory=small_models:leaves", "model 'b': its factory raised SystemExit"),
    ("models.1.factory=small_models:mpl", "small_models has no 'mpl', did you mean 'mlp'?"),
    ("models.1.factory=nowhere:mlp", "there is no module 'nowhere'"),
    ("training.loss=small_models:nan_loss", "the loss is nan before the first step"),
    ("training.loss=small_models:by_class", "gave shape (10,) for 4 rows"),
    ("training.loss=small_models:raising_loss", "RuntimeError: no loss today"),
    ("training.stpes=3", "training.stpes: is not a key of this section; did you mean 'steps'?"),
    ("cluster.concurrency=4", "workers = 6 do not fit concurrency = 4"),
]


@pytest.fixture
def shell(tmp_path: Path) -> CommandLine:
    """In a folder with a job, its models, and data that cannot be used."""
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "small_models.py").write_text(MODELS)
    classes = np.zeros(200, dtype=np.int64)
    np.savez(tmp_path / "words.npz", x=np.array([["a"] * 64] * 200), y=classes)
    np.savez(tmp_path / "narrow.npz", x=np.zeros((200, 5), dtype=np.float32), y=classes)
    np.savez(tmp_path / "holes.npz", x=np.full((200, 64), np.nan, dtype=np.float32), y=classes)
    np.savez(tmp_path / "eleventh.npz", x=np.zeros((200, 64), dtype=np.float32), y=(np.arange(200) > 9) * 10)
    (tmp_path / "junk.npz").write_bytes(b"junk")
    return CommandLine(tmp_path)


def assert_told(ended: Ended, code: int, message: str) -> None:
    """One line on stderr, and the same as the one document on stdout."""
    assert ended.code == code, ended
    (line,) = ended.err.splitlines()
    assert line.startswith("gradmux: ")
    assert message in line
    assert json.loads(ended.out) == {"error": line.removeprefix("gradmux: "), "exit_code": code}


@pytest.mark.parametrize(("setting", "message"), MISTAKES)
def test_a_mistake_in_a_job_is_one_line_before_anything_starts(shell: CommandLine, setting: str, message: str) -> None:
    assert_told(shell.run("submit", "job.toml", "--json", "--set", setting), CONFIGURATION, message)
    assert not shell.home.exists()


def test_so_it_is_with_a_process_that_nothing_has_warmed(shell: CommandLine) -> None:
    ended = shell.run("submit", "job.toml", "--json", "--set", "models.1.factory=small_models:mpl", fresh=True)
    assert_told(ended, CONFIGURATION, "small_models has no 'mpl', did you mean 'mlp'?")
    assert not shell.home.exists()


@pytest.mark.parametrize("command", [("submit", "job.toml"), ("local", "up")], ids=" ".join)
def test_a_home_that_cannot_be_written_is_one_line(shell: CommandLine, command: tuple[str, ...]) -> None:
    (shell.folder / "file").touch()
    home = shell.folder / "file" / "home"
    ended = shell.run(*command, "--json", "--home", home)
    code = PREFLIGHT if command[0] == "local" else CONFIGURATION
    assert_told(ended, code, f"can be kept in the home folder {home}: Not a directory")


@pytest.mark.parametrize("which", ["--lambda-port", "--s3-port"])
def test_a_port_in_use_is_one_line_that_names_it(shell: CommandLine, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = shell.run("local", "up", "--json", which, str(port))
    assert_told(ended, PREFLIGHT, f"port {port}")


def test_a_loss_that_becomes_nan_stops_the_run_in_one_line(shell: CommandLine) -> None:
    ended = shell.run("submit", "job.toml", "-q", "--json", "--set", "training.loss=small_models:nan_later")
    assert_told(ended, RESUMABLE, "NonFiniteResult")


def test_what_only_workers_are_refused_is_told_with_the_users_own_stack(shell: CommandLine) -> None:
    """A loss that works wherever it is tried."""
    ended = shell.run("submit", "job.toml", "-q", "--set", "training.loss=small_models:refuses_later")
    assert (ended.code, ended.out) == (RESUMABLE, "")
    first, *stack = ended.err.splitlines()
    assert "model 'a', step 0 failed" in first
    assert "IndexError: too many for me" in first
    assert first.endswith("; `gradmux resume small-1` goes on")
    assert "Traceback" not in ended.err
    assert all(line.startswith("gradmux:  ") for line in stack), "where it happened, indented"
