"""A process that has imported all of gradmux, and that becomes a command by forking itself: no start takes seconds.

Argument 1 is the descriptor of a socket. Each message is one command: its arguments, folder and environment as JSON,
with the descriptors of its stdout, its stderr, and a pipe. Through the pipe come the command's pid and, at its end, its
wait status, each as an int64. Single-threaded for ever, because it forks. The other side is `warm.py`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

NUMBER = struct.Struct("q")
MESSAGE_BYTES = 1 << 17
BESIDES_COMMANDS = (
    "gradmux.orchestrator.demo.contest",
    "gradmux.orchestrator.runs.finish",
    "gradmux.cli.foreground",
    "gradmux.orchestrator.runs.keep",
    "gradmux.infra.aws.backend",
    "gradmux.infra.local.backend",
    "gradmux.orchestrator.runs.prepare",
    "gradmux.cli.progress",
    "gradmux.orchestrator.runs.train",
    "rich.console",
    "sklearn.datasets",
    "torch._dynamo",
)
"""What commands import while they work."""


def warm_up() -> None:
    """Imports, and computes nothing: a child finds all as a fresh process does after its imports."""
    from gradmux.cli.main import COMMANDS
    from gradmux.orchestrator.training.trial.clean import clean_process

    for module in (*(f"gradmux.cli.commands.{name.replace('-', '_')}" for name in COMMANDS), *BESIDES_COMMANDS):
        importlib.import_module(module)
    clean_process()  # in which commands try models: theirs is this one's
    gc.collect()
    gc.freeze()  # else a child's end copies every page that an object lies on
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork would be a gamble"


def serve(control: socket.socket) -> list[str] | None:
    """The arguments of a command, in the process that is to be it; None in this one, when nobody asks any more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
        if not message:
            return None
        if os.fork() == 0:
            control.close()
            out, err, report = descriptors
            wanted: dict[str, Any] = json.loads(message)
            if fork_and_watch(out, err, report):
                become(wanted, out, err, report)
                arguments: list[str] = wanted["arguments"]
                return arguments
        for each in descriptors:
            os.close(each)


def fork_and_watch(*descriptors: int) -> bool:
    """True in the command's process. The other one waits for its end, tells of it through the last pipe, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        return True
    *others, report = descriptors
    for each in others:
        os.close(each)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(report, NUMBER.pack(status))
    os._exit(0)


def become(wanted: dict[str, Any], out: int, err: int, report: int) -> None:
    """A session, standard streams, folder and environment of its own; then says its pid."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.write(report, NUMBER.pack(os.getpid()))
    for each in (out, err, report):
        os.close(each)


def main() -> None:
    """Entry point. Returns in the process of a command, when the command is over."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks; its end is ours
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the watching children are buried by the kernel
    warm_up()
    arguments = serve(control)
    if arguments is None:
        return
    sys.argv[:] = ["gradmux", *arguments]
    from gradmux.cli.main import main as gradmux

    gradmux()


if __name__ == "__main__":
    main()
