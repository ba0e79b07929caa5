"""A process that has imported what an emulator consists of, and becomes one by forking itself.

Argument 1 is the descriptor of a socket. Each message is one emulator: module and arguments of its server, folder and
environment as JSON, with the descriptors of its three standard streams, and of a pipe as in `warm_server.py`. The
server's own children, zygote and moto, are forks of the server. Single-threaded for ever, because it forks.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NoReturn, TextIO

from tests.commands.warm_server import MESSAGE_BYTES, NUMBER, fork_and_watch

MODULES = ("server", "service", "zygote", "s3", "parts")
BESIDES = ("torch", "gradmux.lambda_worker.handler", "gradmux.lambda_worker.stretch", "moto.s3.responses")


class Forked:
    """A child of a server; to `parts.py` it is what a `subprocess.Popen` is."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        pass_fds: Sequence[int],
    ) -> None:
        reader, writer = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            out = writer if stdout == subprocess.PIPE else os.open(os.devnull, os.O_WRONLY)
            become(env, os.open(os.devnull, os.O_RDONLY), out, 2)
            _keep_open(pass_fds)
            run(list(command[3:]))
        os.close(writer)
        self.stdout: IO[bytes] | None = os.fdopen(reader, "rb")

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired."""
        if self.returncode is None:
            watched = os.pidfd_open(self.pid)
            try:
                if not _ends(watched, timeout):
                    raise subprocess.TimeoutExpired("a part of the emulator", timeout or 0.0)
            finally:
                os.close(watched)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """What `parts.py` needs of the module `subprocess`."""

    DEVNULL, PIPE, TimeoutExpired, Popen = subprocess.DEVNULL, subprocess.PIPE, subprocess.TimeoutExpired, Forked


def become(environment: Mapping[str, str], stdin: int, stdout: int, stderr: int) -> None:
    """Environment, module path, standard streams and signals of a process that has just begun."""
    before = {os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    os.environ.clear()
    os.environ.update(environment)
    named = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [*named, *(each for each in sys.path if os.path.abspath(each) not in before)]
    importlib.invalidate_caches()
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        if descriptor != number:
            os.dup2(descriptor, number)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _unbuffered(1), _unbuffered(2)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def run(arguments: Sequence[str]) -> NoReturn:
    """`python -m ARGUMENTS` to its end, which is that of this process. No module of the tests is left to it."""
    code: Any = 1
    try:
        module = importlib.import_module(arguments[0])
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.modules["__main__"], sys.argv[:] = module, arguments
        main: Callable[[], None] = module.main
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve(control: socket.socket) -> None:
    """Starts an emulator for each message, until nobody asks any more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 4)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            stdin, stdout, stderr, report = descriptors
            if fork_and_watch(stdin, stdout, stderr, report):
                _begin(json.loads(message), stdin, stdout, stderr, report)
        for each in descriptors:
            os.close(each)


def _begin(wanted: dict[str, Any], stdin: int, stdout: int, stderr: int, report: int) -> NoReturn:
    from gradmux.infra.local import parts

    os.setsid()
    os.chdir(wanted["folder"])
    become(wanted["environment"], stdin, stdout, stderr)
    os.write(report, NUMBER.pack(os.getpid()))
    _keep_open([])
    setattr(parts, "subprocess", Forks)  # noqa: B010
    run(wanted["arguments"])


def _unbuffered(number: int) -> TextIO:
    return io.TextIOWrapper(open(number, "wb", buffering=0, closefd=False), write_through=True)


def _ends(watched: int, timeout_s: float | None) -> bool:
    return bool(select.select([watched], [], [], timeout_s)[0])


def _keep_open(descriptors: Sequence[int]) -> None:
    """Closes all others but the standard streams."""
    kept = sorted({0, 1, 2, *descriptors})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def main() -> None:
    """Entry point."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks; its end is ours
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the watching children are buried by the kernel
    for module in (*(f"gradmux.infra.local.{name}" for name in MODULES), *BESIDES):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork would be a gamble"
    serve(control)


if __name__ == "__main__":
    main()
