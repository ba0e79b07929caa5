"""One worker process as the endpoint sees it: a socket to call it, a log, and how it ended.

Knows nothing of HTTP, delays or which call comes next. Started by `pool.py`, used by `invocation.py`; the other end of
the socket is `worker.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from gradmux.infra.local.wire import CALL, REPLY, ReplyKind

LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker said."""

    kind: ReplyKind
    body: bytearray


class Verdict(Enum):
    """Why the emulator itself ended a worker."""

    OUT_OF_MEMORY = "memory"
    TIMED_OUT = "timeout"
    INJECTED = "injected"


class WorkerDied(Exception):
    """The process ended before it answered. `how` is in Lambda's words: "signal: killed", "exit status 1"."""

    def __init__(self, wait_status: int) -> None:
        self.how = ending(wait_status)
        super().__init__(self.how)


def ending(wait_status: int) -> str:
    """How a process ended, as Lambda words it."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return f"exit status {code}"
    words = {signal.SIGKILL: "killed", signal.SIGSEGV: "segmentation fault", signal.SIGABRT: "aborted"}
    return f"signal: {words.get(signal.Signals(-code), signal.Signals(-code).name)}"


class Sandbox:
    """A worker that takes one call at a time."""

    def __init__(self, number: int, connection: socket.socket, log: int) -> None:
        self.number = number
        self.pid = 0
        self.worker: int | None = None
        self.calls = 0
        self.init_s = 0.0
        self.in_use = False
        self.verdict: Verdict | None = None
        """why it was told to end; such a sandbox takes no more calls"""
        self.peak_mb = 0
        self._connection = connection
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._reply: asyncio.Future[Reply] = self._loop.create_future()
        self._exit: int | None = None
        self._header = bytearray(REPLY.size)
        self._body: bytearray | None = None
        self._filled = 0
        self._loop.add_reader(connection.fileno(), self._readable)

    async def ready(self) -> Reply:
        """Waits for the first word of a new worker: READY, or INIT_ERROR. Raises WorkerDied."""
        return await self._reply

    async def death(self) -> NoReturn:
        """Waits for the end of a worker that was killed before a call. Raises WorkerDied."""
        if self._exit is None:
            self._reply = self._loop.create_future()
            await self._reply
        raise WorkerDied(self._exit or 0)

    async def call(
        self, request_id: str, deadline_ms: int, arn: bytes, context: bytes, payload: bytes | bytearray
    ) -> Reply:
        """Runs the handler once. Raises WorkerDied."""
        if self._exit is not None:
            raise WorkerDied(self._exit)
        self._reply = self._loop.create_future()
        self.calls += 1
        os.ftruncate(self._log, 0)
        header = CALL.pack(deadline_ms, len(payload), len(arn), len(context), request_id.encode())
        await self._send(b"".join((header, arn, context, payload)))
        return await self._reply

    def log_tail(self) -> bytes:
        """The end of what the current or last call printed."""
        size = os.fstat(self._log).st_size
        tail = os.pread(self._log, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        return tail.replace(b"\r", b"\n")  # AWS's runtime writes tracebacks as one line with carriage returns

    def exited(self, wait_status: int) -> None:
        """The zygote has buried the process: whoever waits for a reply hears of it."""
        self._readable()  # a reply sent just before the end still counts
        self._exit = wait_status
        if not self._reply.done():
            self._reply.set_exception(WorkerDied(wait_status))
            self._reply.exception()  # nobody needs to be waiting

    def close(self) -> None:
        """Ends the worker when it is idle, and frees our descriptors."""
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        os.close(self._log)

    async def _send(self, frame: bytes) -> None:
        try:
            sent = self._connection.send(frame)
        except BlockingIOError:
            sent = 0
        except (BrokenPipeError, ConnectionResetError):
            return  # `exited` tells the rest
        if sent < len(frame):
            try:
                await self._loop.sock_sendall(self._connection, memoryview(frame)[sent:])
            except (BrokenPipeError, ConnectionResetError):
                return

    def _readable(self) -> None:
        """Reads what is there: header first, then straight into a buffer of the body's size."""
        try:
            while True:
                target = self._header if self._body is None else self._body
                if self._filled < len(target):
                    received = self._connection.recv_into(memoryview(target)[self._filled :])
                    if received == 0:
                        self._loop.remove_reader(self._connection.fileno())
                        return
                    self._filled += received
                if self._filled == len(target):
                    self._complete()
        except BlockingIOError:
            return
        except ConnectionResetError:
            self._loop.remove_reader(self._connection.fileno())

    def _complete(self) -> None:
        """A header or a body is whole."""
        kind, size, peak_kb = REPLY.unpack(self._header)
        self._filled = 0
        if self._body is None and size:
            self._body = bytearray(size)
            return
        body, self._body = self._body or bytearray(), None
        self.peak_mb = peak_kb // 1024
        if not self._reply.done():
            self._reply.set_result(Reply(ReplyKind(kind), body))
