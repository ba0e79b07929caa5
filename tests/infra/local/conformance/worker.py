"""One sandbox under AWS's own runtime: the process, its environment, and what Lambda would answer for it.

The answers are the emulator's own (`infra/local/answers.py`), so that the two modes can be held together byte for byte.
Read next: `runtime_api.py`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from gradmux.infra.local import answers
from gradmux.infra.local.answers import Answer
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.names import function_arn
from gradmux.infra.local.parts import worker_variables
from gradmux.infra.local.processes import child_environment, python_module
from gradmux.infra.local.sandbox import ending
from gradmux.infra.local.secret import Secret
from tests.infra.local.conformance.runtime_api import Event, Kind, RuntimeApi, Said

DEATH_CHECK_S = 0.05
START_S = 60.0
STOP_S = 10.0
LAST_WORDS_S = 0.2


class ConformanceWorker:
    """`python -m awslambdaric HANDLER`, restarted when it ended, as Lambda does; a context manager."""

    def __init__(
        self, config: EmulatorConfig, lambda_port: int = 9, s3_port: int = 9, secret: Secret | None = None
    ) -> None:
        """Ports and key are those of an emulator, for handlers that use S3; without one they lead nowhere."""
        self._config = config
        self._variables = worker_variables(config, secret or Secret.make(), lambda_port, s3_port)
        self._resources = ExitStack()
        self._sandbox: _Sandbox | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def invoke(self, payload: bytes, client_context: str = "") -> Answer:
        """What Lambda would answer to this call."""
        refused = _refusal(payload)
        if refused is not None:
            return refused
        event = Event(
            request_id=str(uuid.uuid4()),
            payload=payload or b"{}",
            deadline_ms=0,
            arn=function_arn(self._config.region, self._config.function),
            client_context=client_context,
        )
        sandbox = self._sandbox or self._start()
        said = sandbox.run(event, self._config.timeout_s)
        answer = sandbox.answer(event, said, self._config.timeout_s)
        if said is None or said.kind in (Kind.TOO_LARGE, Kind.INIT_ERROR):
            self._end()  # the process is gone, stuck, or about to leave
        return answer

    @property
    def log(self) -> str:
        """What the current process has printed."""
        return "" if self._sandbox is None else self._sandbox.log()

    def _start(self) -> _Sandbox:
        self.starts += 1
        self._sandbox = self._resources.enter_context(_Sandbox(self._config, self._variables))
        return self._sandbox

    def _end(self) -> None:
        self._sandbox = None
        self._resources.close()


def _refusal(payload: bytes) -> Answer | None:
    """What Lambda's front end takes from nobody."""
    if len(payload) > answers.SYNC_REQUEST_BYTES:
        return answers.sync_request_too_large()
    try:
        json.loads(payload or b"{}")
    except ValueError as error:
        return answers.not_json(str(error))
    return None


class _Sandbox:
    """One process with its Runtime API and its own /tmp."""

    def __init__(self, config: EmulatorConfig, variables: Mapping[str, str]) -> None:
        self._config, self._variables = config, variables
        self._resources = ExitStack()
        self._started = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gradmux-conformance-"))
            self._api = RuntimeApi()
            stack.callback(self._api.close)
            self._log: IO[bytes] = stack.enter_context((Path(folder) / "log").open("wb+"))
            self._process = self._launch(Path(folder))
            stack.callback(self._stop)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def run(self, event: Event, timeout_s: float) -> Said | None:
        """What came of one call, whose time begins when the process is ready.

        None when the process ended without a word, or was still busy at the timeout.
        """
        if not self._started:
            first = self._wait({Kind.READY, Kind.INIT_ERROR}, START_S)
            if first is None or first.kind is Kind.INIT_ERROR:
                return first
            self._started = True
        self._api.events.put(replace(event, deadline_ms=int(1000 * (time.time() + timeout_s))))
        return self._wait({Kind.RESPONSE, Kind.ERROR, Kind.TOO_LARGE}, timeout_s)

    def answer(self, event: Event, said: Said | None, timeout_s: float) -> Answer:
        """In Lambda's words."""
        if said is None:
            if not self.ended():
                return answers.timed_out(event.request_id, timeout_s)
            return answers.exited(event.request_id, ending(self._wait_status()))
        if said.kind is Kind.TOO_LARGE:
            return answers.response_too_large(len(said.body))
        return Answer(200, said.body, function_error=None if said.kind is Kind.RESPONSE else "Unhandled")

    def ended(self) -> bool:
        return self._process.poll() is not None

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _launch(self, folder: Path) -> subprocess.Popen[bytes]:
        sandbox_variables = {
            "AWS_LAMBDA_RUNTIME_API": self._api.address,
            "AWS_LAMBDA_LOG_STREAM_NAME": f"conformance-{folder.name}",
            "TMPDIR": str(folder),
        }
        environment = child_environment({**self._variables, **sandbox_variables}, self._config.python_path)
        return subprocess.Popen(
            python_module("awslambdaric", self._variables["_HANDLER"]),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait(self, kinds: set[Kind], limit_s: float) -> Said | None:
        """The next of these things that the runtime says; None when it ends first, or says nothing in time."""
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            dead = self.ended()
            try:
                said = self._api.said.get(timeout=LAST_WORDS_S if dead else min(DEATH_CHECK_S, left_s))
            except queue.Empty:
                if dead:
                    return None
                continue
            if said.kind in kinds:
                return said
        return None

    def _wait_status(self) -> int:
        """As os.wait gives it: exit code or signal."""
        code = self._process.wait()
        return -code if code < 0 else code << 8

    def _stop(self) -> None:
        """A runtime knows no way to be asked to leave."""
        self._process.kill()
        self._process.wait(STOP_S)
