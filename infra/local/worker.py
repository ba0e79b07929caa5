"""A forked worker: AWS's own runtime loop (`awslambdaric`), fed from a socket instead of the Runtime API.

So errors, logs, context and JSON are those of a real Lambda. Knows nothing of delays, faults or other workers.
Its counterpart in the endpoint is `sandbox.py`; the frames are in `wire.py`.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from awslambdaric import bootstrap
from awslambdaric.lambda_runtime_client import InvocationRequest

from gradmux.infra.local.marshal import Marshaller
from gradmux.infra.local.processes import die_with_parent
from gradmux.infra.local.warmup import single_thread
from gradmux.infra.local.wire import CALL, REPLY, ReplyKind


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What all workers of a zygote share."""

    handler: str
    """`module:function`"""
    root: Path
    """every sandbox has its /tmp below"""
    zygote: int
    """pid of the parent"""


class SocketRuntimeClient:
    """What `bootstrap.run` needs of a Runtime API client, over one connected socket."""

    marshaller = Marshaller()

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb", buffering=1 << 16)
        self._ready = False

    def wait_next_invocation(self) -> InvocationRequest:
        """Blocks until the next call; a closed socket ends the worker."""
        if not self._ready:
            self._ready = True
            self._reply(ReplyKind.READY, b"")
        header = self._reader.read(CALL.size)
        if len(header) < CALL.size:
            os._exit(0)
        deadline_ms, payload_bytes, arn_bytes, context_bytes, request_id = CALL.unpack(header)
        arn, context = self._reader.read(arn_bytes).decode(), self._reader.read(context_bytes).decode()
        return InvocationRequest(
            invoke_id=request_id.decode(),
            x_amzn_trace_id=None,
            invoked_function_arn=arn,
            deadline_time_in_ms=deadline_ms,
            client_context=context or None,
            cognito_identity=None,
            tenant_id=None,
            content_type="application/json",
            event_body=self._reader.read(payload_bytes),
            invocation_id=None,
        )

    def post_invocation_result(
        self,
        invoke_id: str,
        result: str | bytes,
        content_type: str = "application/json",
        invocation_id: str | None = None,
    ) -> None:
        self._reply(ReplyKind.RESULT, result if isinstance(result, bytes) else result.encode())

    def post_invocation_error(
        self, invoke_id: str, error: str, xray_fault: str, invocation_id: str | None = None
    ) -> None:
        reason = self.marshaller.take_refusal()
        if reason is not None:
            self._reply(ReplyKind.BAD_REQUEST, reason.encode())
        else:
            self._reply(ReplyKind.ERROR, error.encode())

    def post_init_error(self, error: dict[str, Any], error_type_override: str | None = None) -> None:
        self._reply(ReplyKind.INIT_ERROR, bootstrap.to_json(error).encode())

    def _reply(self, kind: ReplyKind, body: bytes) -> None:
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        header = REPLY.pack(kind, len(body), peak_kb)
        if len(body) <= 1 << 16:
            self._connection.sendall(header + body)
        else:
            self._connection.sendall(header)
            self._connection.sendall(body)


def load_handler(handler: str) -> Any:
    """Imports `module:function`; raises ImportError or AttributeError."""
    module, _, name = handler.partition(":")
    return getattr(importlib.import_module(module), name)


def work(settings: WorkerSettings, number: int, connection: socket.socket, log: int) -> NoReturn:
    """The life of a freshly forked child: never returns into the zygote."""
    die_with_parent(settings.zygote)
    for each in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    redirect_output(log)
    own_temporary_directory(settings.root / str(number))
    os.environ["AWS_LAMBDA_LOG_STREAM_NAME"] = f"sandbox-{number}"
    single_thread()
    reseed()
    gc.enable()
    status = 1
    try:
        bootstrap.run(settings.handler.replace(":", "."), SocketRuntimeClient(connection))
    except SystemExit as request:
        status = request.code if isinstance(request.code, int) else int(request.code is not None)
    except BrokenPipeError:
        status = 0  # the endpoint is gone
    finally:
        os._exit(status)


def redirect_output(log: int) -> None:
    """Standard output and error of the worker, C code included, go to the log that the endpoint reads."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def own_temporary_directory(directory: Path) -> None:
    """A sandbox has its own /tmp: handlers find it by `tempfile`, TMPDIR or LAMBDA_TASK_TMP."""
    directory.mkdir(mode=0o700)
    os.environ["TMPDIR"] = os.environ["LAMBDA_TASK_TMP"] = str(directory)
    tempfile.tempdir = str(directory)


def reseed() -> None:
    """Workers are not twins: forked copies of one random state would draw the same numbers.

    `torch.seed` would do the same through every device module, for 2 ms and 2 MB in each worker.
    """
    torch, numpy_random = sys.modules.get("torch"), sys.modules.get("numpy.random")
    if torch is not None:
        torch.default_generator.seed()
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


class _NoSemLock:
    """Lambda has no /dev/shm: semaphores fail there, and with them `multiprocessing.Queue` and DataLoader workers."""

    SEM_VALUE_MAX = 2147483647

    def __new__(cls, *_: object) -> _NoSemLock:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def forbid_semaphores() -> None:
    """From here on, and in every child, semaphores fail as on Lambda."""
    vars(importlib.import_module("_multiprocessing"))["SemLock"] = _NoSemLock
