"""The emulator as a process of its own that outlives the terminal: started, found and stopped by its state file.

A state file is trusted only when its process still lives and began when the file says: pids are used again.
Run as `python -m cli.local_service STATE_FILE OPTIONS_JSON`. Read next: `commands/local.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from orchestrator.errors import ConfigError, PreflightError

START_S = 60.0
"""patience for torch to be imported and S3 to answer"""
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What the state file holds."""

    pid: int
    started: float
    """the process's creation time as the system tells it, seconds since the epoch"""
    lambda_endpoint: str
    s3_endpoint: str
    function: str
    environment: dict[str, str]
    """for clients: endpoints, region and credentials that are worth nothing"""


def running(state_file: Path) -> ServiceState | None:
    """The service that `state_file` names, when it is alive; a file left over by a dead one is removed."""
    try:
        state = ServiceState(**json.loads(state_file.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise ConfigError(f"{state_file} is damaged: remove it, and `gradmux local up` starts anew") from None
    if _lives(state):
        return state
    state_file.unlink(missing_ok=True)
    return None


def start(state_file: Path, log: Path, options: dict[str, Any]) -> ServiceState:
    """Starts the service in the background and waits until it answers.

    Raises: PreflightError with the service's own last words when it does not come up.
    """
    state_file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cli.local_service", str(state_file), json.dumps(options)]
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if (state := running(state_file)) is not None:
            return state
        if child.poll() is not None:
            raise PreflightError(_last_line(log))
        time.sleep(0.05)
    child.terminate()
    raise PreflightError(f"the emulator did not come up within {START_S:g} s: see {log}")


def stop(state_file: Path) -> bool:
    """Ends the service and all it started; False when none was running."""
    state = running(state_file)
    if state is None:
        return False
    process = psutil.Process(state.pid)
    process.terminate()
    try:
        process.wait(STOP_S)
    except psutil.TimeoutExpired:
        process.kill()
    state_file.unlink(missing_ok=True)
    return True


def _lives(state: ServiceState) -> bool:
    try:
        process = psutil.Process(state.pid)
        return process.create_time() == state.started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("gradmux: ") if lines else f"the emulator ended at once: see {log}"


def serve(state_file: Path, options: dict[str, Any]) -> None:
    """Runs the emulator until SIGTERM or SIGINT."""
    from cli.wiring import start_emulator

    asked_to_stop = Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: asked_to_stop.set())
    with start_emulator(**options) as emulator:
        state = ServiceState(
            pid=os.getpid(),
            started=psutil.Process().create_time(),
            lambda_endpoint=emulator.lambda_endpoint,
            s3_endpoint=emulator.s3_endpoint,
            function=options["function"],
            environment=dict(emulator.environment()),
        )
        part = state_file.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(asdict(state)))
        part.replace(state_file)
        asked_to_stop.wait()
    state_file.unlink(missing_ok=True)


if __name__ == "__main__":
    from cli.output import report_error
    from orchestrator.errors import GradmuxError

    try:
        serve(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except GradmuxError as error:
        report_error(str(error), error.exit_code, as_json=False)
        sys.exit(error.exit_code)
