"""The sandboxes: which one takes a call, when a new one is forked, and what happens when one ends.

Its other half is the zygote, a process that forks on our order. Knows nothing of HTTP, delays or faults.
Read next: `sandbox.py`, `zygote.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import time
from pathlib import Path

from infra.local.processes import resident_mb
from infra.local.sandbox import Sandbox, Verdict
from infra.local.wire import NOTICE, ORDER, ReplyKind

FORKS_ORDERED = 4
MEMORY_CHECK_S = 0.02


class InitFailed(Exception):
    """A new sandbox could not load the handler; the text is AWS's error object."""


class Pool:
    """Idle sandboxes by the logical worker that they served last, busy ones, and new ones from the zygote."""

    def __init__(self, control: socket.socket, root: Path, memory_mb: int) -> None:
        self.sandboxes: dict[int, Sandbox] = {}
        self._control = control
        self._root = root
        self._memory_mb = memory_mb
        self._numbers = 0
        self._idle: dict[int, Sandbox] = {}
        self._home: dict[int | None, int] = {}
        self._in_use: set[int] = set()
        self._doomed: set[int] = set()
        self._pids: dict[int, asyncio.Future[int]] = {}
        self._forks = asyncio.Semaphore(FORKS_ORDERED)
        self._running: set[Sandbox] = set()
        self._memory_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control.fileno(), self._notice)

    async def take(self, worker: int | None) -> tuple[Sandbox, bool]:
        """A sandbox for this logical worker and whether it was started for it. Raises InitFailed, WorkerDied.

        Best is the sandbox that served the worker last; then one that no worker calls its own; then any idle one.
        """
        number = self._choose(worker)
        if number is not None:
            sandbox, cold = self._idle.pop(number), False
        else:
            sandbox, cold = await self.start(), True
        self._in_use.add(sandbox.number)
        if worker is not None:
            sandbox.worker = worker
            self._home[worker] = sandbox.number
        return sandbox, cold

    def give_back(self, sandbox: Sandbox) -> None:
        """The call is answered; the sandbox is warm for the next one."""
        self._in_use.discard(sandbox.number)
        if sandbox.number not in self.sandboxes:
            sandbox.close()
        elif sandbox.number not in self._doomed:
            self._idle[sandbox.number] = sandbox

    def running(self, sandbox: Sandbox) -> None:
        """The handler starts: from now on its memory is watched."""
        self._running.add(sandbox)
        if self._memory_timer is None:
            self._memory_timer = self._loop.call_later(MEMORY_CHECK_S, self._check_memory)

    def rests(self, sandbox: Sandbox) -> None:
        """The handler has returned; the call may still be waiting for its injected delay."""
        self._running.discard(sandbox)

    def kill(self, sandbox: Sandbox, verdict: Verdict, signal_number: int = signal.SIGKILL) -> None:
        """Ends the process; its /tmp goes with it. The caller still gives it back."""
        if sandbox.number not in self.sandboxes:
            return
        sandbox.verdict = sandbox.verdict or verdict
        if verdict is Verdict.OUT_OF_MEMORY:
            sandbox.peak_mb = self._memory_mb
        self._doomed.add(sandbox.number)
        self._idle.pop(sandbox.number, None)
        self._control.send(ORDER.pack(b"K", sandbox.number, signal_number))

    async def warm(self, count: int) -> None:
        """Starts sandboxes until `count` of them exist."""
        missing = count - len(self.sandboxes)
        for sandbox in await asyncio.gather(*(self.start() for _ in range(missing))):
            self.give_back(sandbox)

    async def start(self) -> Sandbox:
        """Forks a sandbox and waits until it is ready. Raises InitFailed, WorkerDied."""
        async with self._forks:
            began = time.perf_counter()
            self._numbers += 1
            number = self._numbers
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            log = os.memfd_create(f"log-{number}", os.MFD_CLOEXEC)
            fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
            sandbox = self.sandboxes[number] = Sandbox(number, ours, log)
            self._pids[number] = self._loop.create_future()
            socket.send_fds(self._control, [ORDER.pack(b"S", number, 0)], [theirs.fileno(), log])
            theirs.close()
            sandbox.pid = await self._pids[number]
            reply = await sandbox.ready()
            sandbox.init_s = time.perf_counter() - began
        if reply.kind is ReplyKind.INIT_ERROR:
            raise InitFailed(bytes(reply.body).decode())
        return sandbox

    def _choose(self, worker: int | None) -> int | None:
        home = self._home.get(worker)
        if home in self._idle:
            return home
        spare = (number for number, each in self._idle.items() if self._home.get(each.worker) != number)
        return next(spare, next(iter(self._idle), None))

    def _notice(self) -> None:
        """The zygote tells a pid or an end."""
        while True:
            try:
                message = self._control.recv(4096)
            except BlockingIOError:
                return
            if not message:
                self._loop.remove_reader(self._control.fileno())
                return
            what, number, value = NOTICE.unpack(message[: NOTICE.size])
            if what == b"P":
                self._pids.pop(number).set_result(value)
            elif what == b"X":
                self._ended(number, value)

    def _ended(self, number: int, wait_status: int) -> None:
        sandbox = self.sandboxes.pop(number)
        self._idle.pop(number, None)
        self._doomed.discard(number)
        self._running.discard(sandbox)
        sandbox.exited(wait_status)
        if number not in self._in_use:
            sandbox.close()
        self._loop.run_in_executor(None, lambda: shutil.rmtree(self._root / str(number), ignore_errors=True))

    def _check_memory(self) -> None:
        """Kills handlers that hold more memory than the function has."""
        for sandbox in tuple(self._running):
            if resident_mb(sandbox.pid) > self._memory_mb:
                self.kill(sandbox, Verdict.OUT_OF_MEMORY)
        again = bool(self._running)
        self._memory_timer = self._loop.call_later(MEMORY_CHECK_S, self._check_memory) if again else None
