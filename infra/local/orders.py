"""The endpoint's line to the zygote: orders out, notices in, neither ever waits.

Knows numbers and pids, not what a sandbox is. The other end is `zygote.py`; used by `pool.py`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from gradmux.infra.local.wire import NOTICE, ORDER


class Orders:
    """Sends orders in their order, also when the socket is full: a thousand workers may have to be killed at once."""

    def __init__(self, control: socket.socket, on_exit: Callable[[int, int], None]) -> None:
        """`on_exit` hears of every ended worker: its sandbox number and wait status."""
        control.setblocking(False)
        self._control = control
        self._on_exit = on_exit
        self._waiting: deque[tuple[bytes, list[socket.socket | int]]] = deque()
        self._pids: dict[int, asyncio.Future[int]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(control.fileno(), self._notice)

    async def start(self, number: int, connection: socket.socket, log: int) -> int:
        """Has a worker forked with these descriptors; its pid. Closes `connection`: it is the worker's now."""
        forked = self._pids[number] = self._loop.create_future()
        self._waiting.append((ORDER.pack(b"S", number, 0), [connection, log]))
        self._flush()
        pid: int = await forked
        return pid

    def kill(self, number: int, signal_number: int) -> None:
        """Has a worker killed; nothing happens when it has ended already."""
        self._waiting.append((ORDER.pack(b"K", number, signal_number), []))
        self._flush()

    def _flush(self) -> None:
        descriptor = self._control.fileno()
        while self._waiting:
            order, carried = self._waiting[0]
            try:
                numbers = [each if isinstance(each, int) else each.fileno() for each in carried]
                socket.send_fds(self._control, [order], numbers)
            except BlockingIOError:
                self._loop.add_writer(descriptor, self._flush)
                return
            except (BrokenPipeError, ConnectionResetError):
                self._waiting.clear()  # the zygote is gone, and so will be the server
                return
            self._waiting.popleft()
            for each in carried:
                if isinstance(each, socket.socket):
                    each.close()
        self._loop.remove_writer(descriptor)

    def _notice(self) -> None:
        """The zygote tells a pid or an end."""
        while True:
            try:
                message = self._control.recv(NOTICE.size)
            except BlockingIOError:
                return
            if not message:
                self._loop.remove_reader(self._control.fileno())
                return
            what, number, value = NOTICE.unpack(message)
            if what == b"P":
                self._pids.pop(number).set_result(value)
            elif what == b"X":
                self._on_exit(number, value)
