"""The emulator as a context manager: Lambda and S3 on this machine while the block runs, nothing left after it.

    with Emulator(EmulatorConfig(handler="my_module:handler")) as emulator:
        boto3.client("lambda", endpoint_url=emulator.lambda_endpoint, ...)

Knows only how to start the server process and to speak to it. Read next: `server.py`; for one that outlives its
parent, `detached.py`.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from gradmux.infra.local.client import AdminClient
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.faults import FaultPlan
from gradmux.infra.local.injection import DelayPlan
from gradmux.infra.local.launch import Started, start_server, stop_server
from gradmux.infra.local.secret import Secret


class Emulator:
    """Lambda and S3 on 127.0.0.1, for as long as the context is open."""

    def __init__(self, config: EmulatorConfig | None = None) -> None:
        self.config = config or EmulatorConfig()
        self._resources = ExitStack()
        self._started: Started | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Starts everything. Raises EmulatorError: port in use, handler that cannot be imported."""
        with ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryFile())
            self._server, self._started = start_server(self.config, log)
            stack.callback(stop_server, self._server)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started = self._server = None
        self._resources.close()

    @property
    def started(self) -> Started:
        """Ports and processes. Raises EmulatorError outside the context."""
        if self._started is None:
            raise EmulatorError("the emulator is not running: use it as a context manager")
        return self._started

    def ended(self) -> str:
        """How the emulator came to its end though the context is open ("killed by SIGKILL"); empty while it runs."""
        code = None if self._server is None else self._server.poll()
        if code is None:
            return ""
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    @property
    def lambda_endpoint(self) -> str:
        """URL of the Lambda API."""
        return self.started.lambda_endpoint

    @property
    def s3_endpoint(self) -> str:
        """URL of S3, and of every other service that moto knows."""
        return self.started.s3_endpoint

    @property
    def admin(self) -> AdminClient:
        """All that can be asked of it beside AWS's API."""
        return AdminClient(
            self.started.lambda_port, self.started.s3_port, self.started.secret, self.started.config["region"]
        )

    def environment(self) -> dict[str, str]:
        """AWS_* variables for a client: endpoints, key, no way to AWS. AWS_PROFILE must not be set."""
        return self.started.environment()

    @property
    def secret(self) -> Secret:
        """The key that every request must be signed with."""
        return self.started.secret

    def set_delays(self, plan: DelayPlan) -> None:
        """Replaces the delays of calls from now on."""
        self.admin.set_delays(plan)

    def set_faults(self, plan: FaultPlan) -> None:
        """Replaces the faults of calls from now on."""
        self.admin.set_faults(plan)

    def statistics(self) -> dict[str, Any]:
        """Counters since the start, see `AdminClient.statistics`."""
        return self.admin.statistics()
