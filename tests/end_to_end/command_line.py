"""Command lines as users run them: processes of their own, with all that they start under watch.

A variable in the environment marks a command and its descendants, whatever sessions and groups they are in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "END_TO_END_MARK"
GRADMUX = [sys.executable, "-c", "from cli.main import main; main()"]
PROJECT = Path(__file__).resolve().parents[2]
LINGER_S = 10.0
"""How long what a command has started may live on after it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command line that is over; nothing of it is left."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Running:
    """A command line in a process group of its own."""

    process: subprocess.Popen[str]
    mark: str

    def processes(self) -> list[psutil.Process]:
        """What lives of it: itself and everything it has started."""
        return [process for process in psutil.process_iter() if _mark_of(process) == self.mark]

    def send(self, number: signal.Signals, *, to_group: bool) -> None:
        """As a terminal does (to the group), or as `kill` does."""
        os.killpg(self.process.pid, number) if to_group else self.process.send_signal(number)

    def end(self, timeout_s: float) -> Ended:
        """Waits for its end. Raises AssertionError when something stays behind, or it takes longer."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout_s:g} s: {self.process.communicate()}") from None
        deadline = time.monotonic() + LINGER_S
        while left := self.processes():
            assert time.monotonic() < deadline, f"left behind: {[process.cmdline() for process in left]}"
            time.sleep(0.05)
        return Ended(self.process.returncode, out, err)

    def kill(self) -> None:
        """Ends all of it."""
        for process in self.processes():
            process.kill()
        self.process.kill()


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs `gradmux` in a folder, with a home of its own."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @contextmanager
    def start(self, arguments: Sequence[str | Path], stderr: int = subprocess.PIPE) -> Iterator[Running]:
        """In the background; nothing of it outlives the block. `stderr` may be a descriptor."""
        mark = uuid.uuid4().hex
        environment = {**os.environ, "GRADMUX_HOME": str(self.home), "PYTHONPATH": str(PROJECT), MARK: mark}
        process = subprocess.Popen(
            [*GRADMUX, *map(str, arguments)],
            cwd=self.folder,
            env=environment | self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        running = Running(process, mark)
        try:
            yield running
        finally:
            running.kill()
            process.wait()

    def run(self, *arguments: str | Path, timeout_s: float = 60.0) -> Ended:
        """To its end."""
        with self.start(arguments) as running:
            return running.end(timeout_s)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Returns as soon as the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def _mark_of(process: psutil.Process) -> str | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(MARK)
    except psutil.Error:
        return None
