"""The emulator as a service that outlives the command that started it: `up`, `status`, `down`.

Its state is one file in the home folder, with pids and start times: a pid alone is never trusted. Knows nothing of
Lambda. Read next: `launch.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradmux.infra.local.client import AdminClient
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.environment import environment_file
from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.launch import Started, start_server
from gradmux.infra.local.processes import start_time
from gradmux.orchestrator.disk import make_private, private_opener

STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class State:
    """A running emulator."""

    started: Started
    home: Path

    @property
    def lambda_endpoint(self) -> str:
        """URL of the Lambda API."""
        return self.started.lambda_endpoint

    @property
    def s3_endpoint(self) -> str:
        """URL of S3."""
        return self.started.s3_endpoint

    @property
    def pid(self) -> int:
        """The server process."""
        return self.started.processes["server"][0]

    @property
    def admin(self) -> AdminClient:
        """All that can be asked of it beside AWS's API."""
        return AdminClient(
            self.started.lambda_port, self.started.s3_port, self.started.secret, self.started.config["region"]
        )

    def environment(self) -> dict[str, str]:
        """AWS_* variables for a client, as `Emulator.environment`."""
        return self.started.environment()

    @property
    def environment_file(self) -> Path:
        """The same as a file for shells, which only its owner can read."""
        return environment_file(state_file(self.home).absolute())

    def to_dict(self, show_secret: bool = False) -> dict[str, Any]:
        """For people and programs, as JSON: where it is, and what it has done. The key only if asked for."""
        hidden = () if show_secret else ("AWS_SECRET_ACCESS_KEY",)
        return {
            "running": True,
            "pid": self.pid,
            "lambda_endpoint": self.lambda_endpoint,
            "s3_endpoint": self.s3_endpoint,
            "environment_file": str(self.environment_file),
            "environment": {name: value for name, value in self.environment().items() if name not in hidden},
            "statistics": self.admin.statistics(),
        }


def state_file(home: Path) -> Path:
    """Where the state lies."""
    return home / "local.json"


def lock_file(home: Path) -> Path:
    """Held while an emulator is started."""
    return home / "local.lock"


def log_file(home: Path) -> Path:
    """Where the emulator's complaints go."""
    return home / "local.log"


def up(home: Path, config: EmulatorConfig) -> State:
    """Starts the emulator of this home folder, or finds it running; its delays and faults are then those of `config`.

    Raises EmulatorError: it runs with other settings, a port is in use, the handler cannot be imported, `home` cannot
    be written.
    """
    prepare_home(home)
    with one_at_a_time(home):
        running = status(home)
        if running is None:
            return start(home, config)
    if running.started.config != config.identity():
        raise EmulatorError(
            f"an emulator with other settings runs here (pid {running.pid}, {running.lambda_endpoint}): end it first"
        )
    running.admin.set_delays(config.delays)
    running.admin.set_faults(config.faults)
    return running


def prepare_home(home: Path) -> None:
    """Makes sure that state and log can lie there. Raises EmulatorError."""
    try:
        make_private(home)
        for path in (log_file(home), lock_file(home)):
            with open(path, "ab", opener=private_opener):
                pass
    except OSError as error:
        raise EmulatorError(f"nothing can be kept in the home folder {home}: {error.strerror or error}") from error


def start(home: Path, config: EmulatorConfig) -> State:
    """A new one, that nobody waits for."""
    with open(log_file(home), "wb+", opener=private_opener) as log:
        server, started = start_server(config, log, state_file(home).absolute())
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    server.stdout.close()
    server.returncode = 0  # it is not ours any more: no warning that it still runs
    return State(started, home)


def status(home: Path) -> State | None:
    """The running emulator of this home folder; None when there is none."""
    try:
        started = Started.from_json(json.loads(state_file(home).read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return None
    pid, ticks = started.processes["server"]
    return State(started, home) if start_time(pid) == ticks else None


def down(home: Path) -> bool:
    """Ends the emulator of this home folder and waits for it; False when none was running."""
    running = status(home)
    if running is None:
        if state_file(home).exists():
            forget(home)
        return False
    with contextlib.suppress(ProcessLookupError), process_handle(running.pid) as handle:
        if start_time(running.pid) == running.started.processes["server"][1]:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            signal.pidfd_send_signal(handle, signal.SIGCONT)  # should it be stopped
            if not ended_within(handle, STOP_S):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                ended_within(handle, STOP_S)
    forget(home)
    return True


def forget(home: Path) -> None:
    """Removes what a server that was killed has left."""
    state_file(home).unlink(missing_ok=True)
    environment_file(state_file(home)).unlink(missing_ok=True)


@contextmanager
def process_handle(pid: int) -> Iterator[int]:
    """A descriptor that names this process and no later one with its pid. Raises ProcessLookupError."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def ended_within(handle: int, seconds: float) -> bool:
    """Waits for the end of a process."""
    readable, _, _ = select.select([handle], [], [], seconds)
    return bool(readable)


@contextmanager
def one_at_a_time(home: Path) -> Iterator[None]:
    """Two `up` at once start one emulator."""
    with open(lock_file(home), "w", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
