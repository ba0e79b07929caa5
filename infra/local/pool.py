"""The sandboxes: which one takes a call, when a new one is forked, and what happens when one ends.

Knows nothing of HTTP, delays or faults. Read next: `sandbox.py`; `orders.py` and `zygote.py` do the forking.
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

from gradmux.infra.local.memory import MemoryWatch
from gradmux.infra.local.orders import Orders
from gradmux.infra.local.sandbox import Sandbox, Verdict
from gradmux.infra.local.wire import ReplyKind

FORKS_ORDERED = 3
"""at a time: the zygote forks one, another comes up, a third waits so that neither does"""


class InitFailed(Exception):
    """A new sandbox could not load the handler; the text is AWS's error object."""


class Pool:
    """Idle sandboxes by the logical worker that they served last, busy ones, and new ones from the zygote."""

    def __init__(self, control: socket.socket, root: Path, memory_mb: int) -> None:
        self.sandboxes: dict[int, Sandbox] = {}
        """those whose process lives, by number"""
        self.memory = MemoryWatch(memory_mb, lambda sandbox: self.kill(sandbox, Verdict.OUT_OF_MEMORY))
        self._memory_mb = memory_mb
        self._root = root
        self._orders = Orders(control, self._ended)
        self._started = 0
        self._idle: dict[int, Sandbox] = {}
        self._home: dict[int | None, int] = {}
        self._forks = asyncio.Semaphore(FORKS_ORDERED)
        self._loop = asyncio.get_running_loop()

    async def take(self, worker: int | None) -> tuple[Sandbox, bool]:
        """A sandbox for this logical worker and whether it was started for it. Raises InitFailed, WorkerDied.

        Best is the sandbox that served the worker last; then one that no worker calls its own; then any idle one.
        """
        number = self._choose(worker)
        if number is not None:
            sandbox, cold = self._idle.pop(number), False
        else:
            sandbox, cold = await self._start(), True
        sandbox.in_use = True
        if worker is not None:
            sandbox.worker = worker
            self._home[worker] = sandbox.number
        return sandbox, cold

    def give_back(self, sandbox: Sandbox) -> None:
        """The call is answered; the sandbox is warm for the next one."""
        sandbox.in_use = False
        if sandbox.number not in self.sandboxes:
            sandbox.close()
        elif sandbox.verdict is None:
            self._idle[sandbox.number] = sandbox

    def kill(self, sandbox: Sandbox, verdict: Verdict, signal_number: int = signal.SIGKILL) -> None:
        """Ends the process; its /tmp goes with it. The caller still gives it back."""
        sandbox.verdict = sandbox.verdict or verdict
        if verdict is Verdict.OUT_OF_MEMORY:
            sandbox.peak_mb = self._memory_mb
        self._idle.pop(sandbox.number, None)
        self._orders.kill(sandbox.number, signal_number)

    async def warm(self, count: int) -> None:
        """Starts sandboxes until `count` of them exist. Raises InitFailed, WorkerDied."""
        missing = count - len(self.sandboxes)
        await asyncio.gather(*(self._start_idle() for _ in range(missing)))

    async def _start_idle(self) -> None:
        self.give_back(await self._start())

    async def _start(self) -> Sandbox:
        """Forks a sandbox and waits until it is ready. Raises InitFailed, WorkerDied."""
        async with self._forks:
            began = time.perf_counter()
            self._started += 1
            number = self._started
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            log = os.memfd_create(f"log-{number}", os.MFD_CLOEXEC)
            fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
            sandbox = self.sandboxes[number] = Sandbox(number, ours, log)
            sandbox.pid = await self._orders.start(number, theirs, log)
            reply = await sandbox.ready()
            sandbox.init_s = time.perf_counter() - began
        if reply.kind is ReplyKind.INIT_ERROR:
            raise InitFailed(reply.body.decode())
        return sandbox

    def _choose(self, worker: int | None) -> int | None:
        home = self._home.get(worker)
        if home in self._idle:
            return home
        spare = (number for number, each in self._idle.items() if self._home.get(each.worker) != number)
        return next(spare, next(iter(self._idle), None))

    def _ended(self, number: int, wait_status: int) -> None:
        sandbox = self.sandboxes.pop(number)
        self._idle.pop(number, None)
        self.memory.end(sandbox)
        sandbox.exited(wait_status)
        if not sandbox.in_use:
            sandbox.close()
        self._loop.run_in_executor(None, lambda: shutil.rmtree(self._root / str(number), ignore_errors=True))
