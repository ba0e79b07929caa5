"""Runs a run in a process that outlives the terminal: a session of its own, its log in the run's folder.

The new process is `gradmux resume`, so it needs nothing of ours but the folder. Knows no backend, and imports no torch.
Read next: `commands/resume.py`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradmux.orchestrator.disk import private_opener
from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.runs.life import last_life, next_epoch
from gradmux.orchestrator.runs.lock import RunBusy, busy, is_held
from gradmux.orchestrator.runs.paths import RunPaths

START_S = 120.0
LOOK_S = 0.05
PROGRAM = (sys.executable, "-P", "-m", "gradmux")


class NotStarted(GradmuxError):
    """The process ended before it ran anything."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Detached:
    """A run in a process of its own."""

    paths: RunPaths
    epoch: int
    pid: int

    def describe(self) -> str:
        run = self.paths.run
        return f"{run} runs in process {self.pid}: `gradmux status {run} --watch`, `gradmux logs {run} -f`"

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.paths.run,
            "state": "running",
            "epoch": self.epoch,
            "pid": self.pid,
            "log": str(self.paths.log),
        }


def run_detached(paths: RunPaths, program: Sequence[str] = PROGRAM) -> Detached:
    """Starts the process; returns when it has taken the run.

    Raises: RunBusy when another process was first, of several that were started at once too; NotStarted with the
    process's own last words.
    """
    epoch = next_epoch(paths)
    words = ["resume", str(paths.folder.resolve()), "--epoch", str(epoch), "--quiet"]
    with open(paths.log, "ab", opener=private_opener) as log:
        said_before = log.tell()
        process = subprocess.Popen(
            [*program, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        ended, life = process.poll(), last_life(paths)
        begun = life is not None and life.epoch >= epoch
        if begun and life is not None and life.pid == process.pid:
            process.returncode = 0  # it is not ours any more: no warning that it still runs
            return Detached(paths, epoch, process.pid)
        if ended is not None:
            raise _not_ours(paths, begun) or NotStarted(_last_words(paths, said_before), max(ended, 1))
        time.sleep(LOOK_S)  # when another process has the run, this one finds that out itself, and ends
    raise NotStarted(f"{paths.run} has not begun within {START_S:g} s: see {paths.log}", 1)


def _not_ours(paths: RunPaths, begun: bool) -> RunBusy | None:
    """Why a process has ended that did not get the run: another one has it, or had it (`begun`) meanwhile."""
    if is_held(paths.lock):
        return busy(paths.run, paths.lock)
    if begun:
        return RunBusy(
            f"{paths.run} has been resumed by another process meanwhile: `gradmux status {paths.run}` shows it"
        )
    return None


def _last_words(paths: RunPaths, offset: int) -> str:
    lines = paths.log.read_bytes()[offset:].decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("gradmux: ") if lines else f"{paths.run} ended before it began: see {paths.log}"
