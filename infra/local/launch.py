"""Starts and stops the server process, and says in one line why it did not start.

Knows nothing of what the server does. Used by `emulator.py` and `detached.py`; the other side is `server.py`.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.processes import child_environment, local_variables, python_module
from gradmux.infra.local.secret import Secret

STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Started:
    """What a server said when it was ready."""

    lambda_port: int
    s3_port: int
    processes: dict[str, tuple[int, int]]
    """name -> (pid, start time in clock ticks since boot)"""
    config: dict[str, Any]
    """`EmulatorConfig.identity`"""
    secret: Secret

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Self:
        """Reads the server's line, or its state file."""
        processes = {name: (pid, started) for name, (pid, started) in said["processes"].items()}
        return cls(said["lambda_port"], said["s3_port"], processes, said["config"], Secret(**said["secret"]))

    @property
    def lambda_endpoint(self) -> str:
        """URL of the Lambda API."""
        return f"http://127.0.0.1:{self.lambda_port}"

    @property
    def s3_endpoint(self) -> str:
        """URL of S3, and of every other service that moto knows."""
        return f"http://127.0.0.1:{self.s3_port}"

    def environment(self) -> dict[str, str]:
        """AWS_* variables for a client: endpoints, key, no way to AWS. AWS_PROFILE must not be set."""
        return local_variables(self.config["region"], self.lambda_endpoint, self.s3_endpoint, self.secret)


def start_server(
    config: EmulatorConfig, log: IO[bytes], state: Path | None = None
) -> tuple[subprocess.Popen[bytes], Started]:
    """Starts a server in a session of its own and waits until it is ready. Raises EmulatorError with the reason.

    Its lifeline is the pipe to its standard input, where it is also given its key; with a state file it needs none.
    """
    server = subprocess.Popen(
        python_module("gradmux.infra.local.server", *([str(state)] if state else [])),
        env=child_environment({}, config.python_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for us: the server ends because we do, in order
    )
    with contextlib.ExitStack() as stack:
        stack.callback(stop_server, server)
        said = first_words(server, config)
        if "lambda_port" not in said:
            raise EmulatorError(why_not(said, log))
        stack.pop_all()
    return server, Started.from_json(said)


def first_words(server: subprocess.Popen[bytes], config: EmulatorConfig) -> dict[str, Any]:
    """Hands over the configuration and waits for the one line of JSON; empty when the server ended without it."""
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        told = {"config": config.to_json(), "secret": Secret.make().to_json()}
        server.stdin.write(json.dumps(told).encode() + b"\n")
        server.stdin.flush()
    except BrokenPipeError:
        return {}
    said: dict[str, Any] = json.loads(server.stdout.readline() or "{}")
    return said


def stop_server(server: subprocess.Popen[bytes]) -> None:
    """Ends the server in order and waits for it; kills it when it does not follow."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.terminate()
    server.send_signal(signal.SIGCONT)  # should it be stopped
    with contextlib.suppress(BrokenPipeError):
        server.stdin.close()
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    server.stdout.close()


def why_not(said: dict[str, Any], log: IO[bytes]) -> str:
    """One line: the server's own reason, or the last line of the log where that says more."""
    reason: str = said.get("error", "the emulator did not start")
    if not said.get("see_log", True):
        return reason
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return f"{reason}: {lines[-1]}" if lines else reason
