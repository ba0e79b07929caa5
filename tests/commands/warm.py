"""Starts `gradmux` by forking a process that has imported it: one such process for each process of tests.

What is started is a process like any other, in a session of its own, whose parent is not ours. Read next:
`warm_server.py`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.commands.warm_server import NUMBER

PROJECT = Path(__file__).resolve().parents[2]


class Warm:
    """A command that was started by the warm server; its methods are those of `subprocess.Popen`."""

    def __init__(self, report: int) -> None:
        self._report = report
        self.returncode: int | None = None
        self.pid = self._read()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("gradmux", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(self._read())
            os.close(self._report)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self) -> int:
        number: int
        (number,) = NUMBER.unpack(os.read(self._report, NUMBER.size))
        return number


def start_warm(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], out: int, err: int) -> Warm:
    """`gradmux ARGUMENTS` in `folder`; `out` and `err` are descriptors for its stdout and stderr."""
    message = json.dumps({"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)})
    ours, theirs = os.pipe()
    try:
        socket.send_fds(_server(), [message.encode()], [out, err, theirs])
    finally:
        os.close(theirs)
    return Warm(ours)


@cache
def _server() -> socket.socket:
    # An OpenBLAS with more threads starts them when it is imported, and so does Arrow's allocator, which pandas brings.
    alone = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return begin_server("tests.commands.warm_server", alone)


def begin_server(module: str, environment: Mapping[str, str]) -> socket.socket:
    """The way to a process of `module`; it ends when this end of the way is closed, at the latest with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],
            cwd="/",
            env={**os.environ, **environment, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    process.returncode = 0  # it is not waited for
    return ours
