"""Command lines as users run them: processes of their own, with all that they start under watch.

They begin as forks of a process that has imported everything (`warm.py`); `fresh` ones go through the interpreter's
start and all imports. A variable in the environment marks what a command starts, whatever sessions and groups that is
in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import psutil

from tests.commands.warm import PROJECT, start_warm

MARK = "END_TO_END_MARK"
GRADMUX = [sys.executable, "-c", "from gradmux.cli.main import main; main()"]
PATIENCE_S = 300.0
"""How long a very busy machine may take for what takes it seconds otherwise."""


class Process(Protocol):
    """What tests need of `subprocess.Popen`."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """A command line that is over; nothing of it is left."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Running:
    """A command line in a session of its own."""

    process: Process
    mark: str
    out: IO[bytes]
    err: IO[bytes]

    def processes(self) -> list[psutil.Process]:
        """What lives of it: itself and everything it has started."""
        return [process for process in psutil.process_iter() if self._has(process)]

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """As a terminal does (to the group), or as `kill` does."""
        os.killpg(self.process.pid, number) if to_group else self.process.send_signal(number)

    def told(self) -> tuple[str, str]:
        """What it has said until now: on stdout, on stderr."""
        return _all_of(self.out), _all_of(self.err)

    def end(self, timeout_s: float = PATIENCE_S) -> Ended:
        """Waits for its end, and that of all it has started. Raises AssertionError when that takes longer."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout_s:g} s: {self.told()}") from None
        deadline = time.monotonic() + timeout_s
        while left := self.processes():
            assert time.monotonic() < deadline, f"left behind: {[process.cmdline() for process in left]}"
            time.sleep(0.05)
        return Ended(code, *self.told())

    def kill(self) -> None:
        """Ends all of it."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.kill()

    def _has(self, process: psutil.Process) -> bool:
        """A fork has no mark: it is known by its session."""
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return os.getsid(process.pid) == self.process.pid or process.environ().get(MARK) == self.mark
        except (psutil.Error, ProcessLookupError):
            return False


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs `gradmux` in a folder, with a home of its own."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @contextmanager
    def start(
        self, arguments: Sequence[str | Path], *, fresh: bool = False, stderr: int | None = None
    ) -> Iterator[Running]:
        """In the background; nothing of it outlives the block. `stderr` may be a descriptor of the caller's."""
        words, mark = [str(argument) for argument in arguments], uuid.uuid4().hex
        own = {"GRADMUX_HOME": str(self.home), "PYTHONPATH": str(PROJECT), MARK: mark}
        environment = {**os.environ, **own, **self.variables}
        begin = _start_fresh if fresh else start_warm
        with ExitStack() as stack:
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = begin(words, self.folder, environment, out.fileno(), err.fileno() if stderr is None else stderr)
            running = Running(process, mark, out, err)
            try:
                yield running
            finally:
                running.kill()
                process.wait()

    def run(self, *arguments: str | Path, fresh: bool = False) -> Ended:
        """To its end."""
        with self.start(arguments, fresh=fresh) as running:
            return running.end()


def _start_fresh(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], out: int, err: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*GRADMUX, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


def _all_of(file: IO[bytes]) -> str:
    """Leaves the position alone: it is also that of who writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()


@dataclass(frozen=True, slots=True)
class Submitted:
    """A command line that nobody watches: what it starts may outlive it."""

    process: Process
    out: IO[bytes]
    err: IO[bytes]

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]:
        """(stdout, stderr), when it has ended."""
        self.process.wait(timeout)
        return _all_of(self.out), _all_of(self.err)


def submit(folder: Path, words: Sequence[str], environment: Mapping[str, str]) -> Submitted:
    """`gradmux WORDS` on its way."""
    out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
    environment = {**environment, "PYTHONPATH": str(PROJECT)}
    return Submitted(start_warm(words, folder, environment, out.fileno(), err.fileno()), out, err)


def wait_until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Returns as soon as the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
