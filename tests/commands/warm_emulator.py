"""Emulators for tests of other things: forks of a process that has imported torch, moto and all of the emulator.

An emulator is three processes, each of which imports for a second or more. Here they are forks, which begin at once;
from then on they do what they always do. `warm_emulators` says whether this process starts its emulators so; tests of
the emulator itself, and commands that are processes of their own, start real ones. The other side is
`warm_emulator_server.py`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import IO, Any

from gradmux.infra.local import launch
from gradmux.lambda_worker.processor import pinned_kernels
from tests.commands.warm import Warm, begin_server

ZYGOTE_VARIABLES = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""as the process that workers are forked from has them when it imports torch"""


def warm_emulators(wanted: bool) -> None:
    """From now on emulators of this process are forks, or what they are outside of tests."""
    setattr(launch, "subprocess", Forks if wanted else subprocess)  # noqa: B010


def begin() -> None:
    """Starts the process that emulators are forks of, which stays: for tests that count processes."""
    _server()


class WarmServer(Warm):
    """A server process; with its two streams it is to `launch.py` what a `subprocess.Popen` is."""

    def __init__(self, report: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        super().__init__(report)
        self.stdin, self.stdout = stdin, stdout

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGTERM)


class Forks:
    """What `launch.py` needs of the module `subprocess`."""

    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes], **_: Any) -> WarmServer:
        """The process that this command line would be; `command` is `python -P -m MODULE ARGUMENTS`."""
        message = {"arguments": list(command[3:]), "folder": os.getcwd(), "environment": dict(env)}
        (theirs_in, ours_in), (ours_out, theirs_out), (report, told) = os.pipe(), os.pipe(), os.pipe()
        theirs = [theirs_in, theirs_out, stderr.fileno(), told]
        try:
            socket.send_fds(_server(), [json.dumps(message).encode()], theirs)
        finally:
            for each in (theirs_in, theirs_out, told):
                os.close(each)
        return WarmServer(report, os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb"))


@cache
def _server() -> socket.socket:
    return begin_server("tests.commands.warm_emulator_server", {**ZYGOTE_VARIABLES, **pinned_kernels()})
