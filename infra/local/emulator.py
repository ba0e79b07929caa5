"""The emulator as a context manager: Lambda and S3 on this machine while the block runs, nothing left after it.

    with Emulator(EmulatorConfig(handler="my_module:handler")) as emulator:
        boto3.client("lambda", endpoint_url=emulator.lambda_endpoint, ...)

Knows only how to start the server process and to speak to it. Read next: `server.py`; for one that outlives its
parent, `detached.py`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from infra.local.client import AdminClient
from infra.local.config import EmulatorConfig
from infra.local.errors import EmulatorError
from infra.local.faults import FaultPlan
from infra.local.injection import DelayPlan
from infra.local.processes import child_environment, local_variables, python_module

STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Started:
    """What the server said when it was ready."""

    lambda_port: int
    s3_port: int
    processes: dict[str, tuple[int, int]]
    """name -> (pid, start time in clock ticks since boot)"""


def start_server(config: EmulatorConfig, log: IO[bytes], *arguments: str) -> tuple[subprocess.Popen[bytes], Started]:
    """Starts the server in a session of its own and waits until it is ready. Raises EmulatorError with its reason."""
    server = subprocess.Popen(
        python_module("infra.local.server", *arguments),
        env=child_environment({}, config.python_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C is ours: the server ends when we do, not before
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        server.stdin.write(json.dumps(config.to_json()).encode() + b"\n")
        server.stdin.flush()
        said = json.loads(server.stdout.readline() or "{}")
    except BrokenPipeError:
        said = {}
    except BaseException:
        stop_server(server)
        raise
    if "lambda_port" not in said:
        stop_server(server)
        raise EmulatorError(said.get("error") or f"the emulator did not start: {last_line(log)}")
    processes = {name: (pid, started) for name, (pid, started) in said["processes"].items()}
    return server, Started(said["lambda_port"], said["s3_port"], processes)


def stop_server(server: subprocess.Popen[bytes]) -> None:
    """Closes the lifeline and waits; kills what does not follow."""
    assert server.stdin is not None
    assert server.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        server.stdin.close()
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    server.stdout.close()


def last_line(log: IO[bytes]) -> str:
    """The end of what the server complained of."""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


class Emulator:
    """Lambda and S3 on 127.0.0.1, for as long as the context is open."""

    def __init__(self, config: EmulatorConfig | None = None) -> None:
        self.config = config or EmulatorConfig()
        self._server: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._started: Started | None = None

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        try:
            self._server, self._started = start_server(self.config, self._log)
        except BaseException:
            self._log.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            stop_server(self._server)
        if self._log is not None:
            self._log.close()
        self._server = self._started = self._log = None

    @property
    def lambda_endpoint(self) -> str:
        """URL of the Lambda API."""
        return f"http://127.0.0.1:{self.started.lambda_port}"

    @property
    def s3_endpoint(self) -> str:
        """URL of S3, and of every other service that moto knows."""
        return f"http://127.0.0.1:{self.started.s3_port}"

    @property
    def started(self) -> Started:
        """Ports and processes. Raises EmulatorError outside the context."""
        if self._started is None:
            raise EmulatorError("the emulator is not running: use it as a context manager")
        return self._started

    @property
    def admin(self) -> AdminClient:
        """The admin requests."""
        return AdminClient(self.started.lambda_port)

    def environment(self) -> dict[str, str]:
        """AWS_* variables for a client: endpoints, dummy credentials, no way to AWS. AWS_PROFILE must not be set."""
        return local_variables(self.config.region, self.lambda_endpoint, self.s3_endpoint)

    def set_delays(self, plan: DelayPlan) -> None:
        """Replaces the delays of calls from now on."""
        self.admin.set_delays(plan)

    def set_faults(self, plan: FaultPlan) -> None:
        """Replaces the faults of calls from now on."""
        self.admin.set_faults(plan)

    def statistics(self) -> dict[str, Any]:
        """Counters since the start, see `AdminClient.statistics`."""
        return self.admin.statistics()
