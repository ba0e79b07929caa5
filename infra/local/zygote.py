"""The process that workers are forked from: it has imported and warmed everything, and computes nothing itself.

Takes orders from the endpoint over one socket (`pool.py` is the other end): start a worker, kill a worker. Tells it
which pid a worker got and how one ended. Single-threaded for ever, because it forks. Read next: `worker.py`.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gradmux.infra.local.processes import die_with_parent, wake_at_end_of
from gradmux.infra.local.warmup import warm_up
from gradmux.infra.local.wire import NOTICE, ORDER
from gradmux.infra.local.worker import WorkerSettings, forbid_semaphores, load_handler, work


@dataclass(slots=True)
class Zygote:
    """The loop over orders and dead children."""

    control: socket.socket
    settings: WorkerSettings
    children: dict[int, int]
    """pid -> sandbox number"""

    def serve(self) -> None:
        """Runs until the endpoint closes its end; then kills what is left."""
        wake_reader, wake_writer = socket.socketpair()
        wake_writer.setblocking(False)
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of `control` says the same, and leaves time to clean up
        with suppress(BrokenPipeError, ConnectionResetError):  # an endpoint that was killed ends like any other
            self.loop(wake_reader, wake_writer)
        self.end()

    def loop(self, wake_reader: socket.socket, wake_writer: socket.socket) -> None:
        """Returns, or raises BrokenPipeError or ConnectionResetError, when the endpoint is gone."""
        while True:
            readable, _, _ = select.select([self.control, wake_reader], [], [])
            if wake_reader in readable:
                wake_reader.recv(4096)
                self.reap()
            if self.control in readable and not self.obey(wake_reader, wake_writer):
                return

    def end(self) -> None:
        """Kills and buries all workers, and removes their /tmp."""
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for pid in self.children:
            os.waitpid(pid, 0)
        shutil.rmtree(self.settings.root, ignore_errors=True)

    def obey(self, *ours: socket.socket) -> bool:
        """One order; False when the endpoint is gone. `ours` are the sockets that no child may keep."""
        message, descriptors, _, _ = socket.recv_fds(self.control, ORDER.size, 2)
        if not message:
            return False
        order, number, signal_number = ORDER.unpack(message)
        if order == b"S":
            self.start(number, descriptors, ours)
        else:
            self.kill(number, signal_number)
        return True

    def start(self, number: int, descriptors: list[int], ours: tuple[socket.socket, ...]) -> None:
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for each in (self.control, *ours):
                each.close()
            work(self.settings, number, socket.socket(fileno=descriptors[0]), descriptors[1])
        for descriptor in descriptors:
            os.close(descriptor)
        self.children[pid] = number
        self.control.send(NOTICE.pack(b"P", number, pid))

    def kill(self, number: int, signal_number: int) -> None:
        """Safe against reused pids: only this process reaps, so a pid in `children` is still ours."""
        for pid, child in self.children.items():
            if child == number:
                os.kill(pid, signal_number)

    def reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.control.send(NOTICE.pack(b"X", self.children.pop(pid), status))


def main() -> None:
    """Entry point: argument 1 is the settings as JSON, with the control descriptor and the parent's pid."""
    arguments = json.loads(sys.argv[1])
    die_with_parent(arguments["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=arguments["control"])
    settings = WorkerSettings(handler=arguments["handler"], root=Path(arguments["root"]), zygote=os.getpid())
    try:
        warm_up(tuple(arguments["preload"]))
        load_handler(settings.handler)
    except (ImportError, AttributeError, SyntaxError) as error:
        reason = f"cannot load {settings.handler} with {arguments['preload']}: {type(error).__name__}: {error}"
        control.send(NOTICE.pack(b"E", 0, 0) + reason.encode())
        return
    forbid_semaphores()
    gc.collect()
    gc.freeze()
    gc.disable()
    wake_at_end_of(arguments["parent"])  # from now on it leaves in order, which the end of `control` tells it to
    control.send(NOTICE.pack(b"R", 0, 0))
    Zygote(control, settings, {}).serve()


if __name__ == "__main__":
    main()
