"""HTTP/1.1 as far as the endpoint needs it: kept connections, bodies of known length, replies sent without a copy.

A general server spends more time on each call than all the rest of the emulator. Knows nothing of Lambda: requests go
to one function. Used by `service.py`; read next: `endpoint.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from gradmux.infra.local.http_head import BadHead, Request, parse_head

RECEIVE_BYTES = 1 << 16
HEAD_BYTES = 1 << 16
ACCEPTED_AT_ONCE = 64
REASONS = {status.value: status.phrase for status in HTTPStatus}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Response:
    """What goes back."""

    status: int
    headers: dict[str, str]
    body: bytes | bytearray = b""
    truncated: bool = False
    """promises the whole body, sends half of it and hangs up"""


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Accepts connections on a listening socket for as long as it is open."""

    def __init__(self, listener: socket.socket, handler: Handler, body_limit: int) -> None:
        """Bodies over `body_limit` bytes are read and dropped: their request has None."""
        self.handler = handler
        self.body_limit = body_limit
        self.connections: set[Connection] = set()
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stops at once."""
        self._loop.remove_reader(self._listener.fileno())
        for connection in tuple(self.connections):
            connection.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                peer, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.add(Connection(peer, self))


class Connection:
    """One client, one request at a time. What it sends ahead waits."""

    def __init__(self, peer: socket.socket, server: HttpServer) -> None:
        self._peer = peer
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._request: Request | None = None
        self._filled = 0
        self._task: asyncio.Task[Response] | None = None
        self._unsent: list[memoryview] = []
        self._keep = True
        self._loop.add_reader(peer.fileno(), self._readable)

    def close(self) -> None:
        """Drops the client; its call, if any, runs on."""
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._loop.remove_reader(self._peer.fileno())
            self._loop.remove_writer(self._peer.fileno())
            self._peer.close()

    def _readable(self) -> None:
        body = self._request.body if self._request and not self._task else None
        try:
            if isinstance(body, bytearray):  # straight to where it belongs
                count = self._peer.recv_into(memoryview(body)[self._filled :])
            else:
                data = self._peer.recv(RECEIVE_BYTES)
                count = len(data)
                self._received += data
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
        elif isinstance(body, bytearray):
            self._filled += count
            if self._filled == len(body):
                self._begin()
        else:
            self._parse()

    def _parse(self) -> None:
        """Takes the next request off what was received, when it is all there and nothing runs."""
        if self._task is not None or self._unsent:
            return
        if self._request is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > HEAD_BYTES:
                    self._refuse("the request's head is too long")
                return
            try:
                self._request = parse_head(self._received[:end])
            except BadHead as error:
                self._refuse(str(error))
                return
            self._received = self._received[end + 4 :]
            if self._request.expects_continue:
                self._send([memoryview(b"HTTP/1.1 100 Continue\r\n\r\n")])
        self._take_body(self._request)

    def _take_body(self, request: Request) -> None:
        if request.length > self._server.body_limit:
            self._drop_body(request)
        elif len(self._received) >= request.length:
            request.body, self._received = self._received[: request.length], self._received[request.length :]
            self._begin()
        else:
            request.body = bytearray(request.length)
            self._filled = len(self._received)
            request.body[: self._filled] = self._received
            self._received = b""

    def _drop_body(self, request: Request) -> None:
        """Reads on to the end of a body that is too large, so that the client listens when it is refused."""
        dropped = min(len(self._received), request.length - self._filled)
        self._received = self._received[dropped:]
        self._filled += dropped
        if self._filled == request.length:
            request.body = None
            self._begin()

    def _begin(self) -> None:
        assert self._request is not None
        self._filled = 0
        self._keep = self._request.keep_alive
        self._task = self._loop.create_task(self._answer(self._request))
        self._task.add_done_callback(self._answered)

    async def _answer(self, request: Request) -> Response:
        return await self._server.handler(request)

    def _answered(self, task: asyncio.Task[Response]) -> None:
        self._task = self._request = None
        if task.cancelled():
            self.close()
            return
        error = task.exception()
        if error is not None:
            log.error("a request failed", exc_info=error)
            self._refuse(type(error).__name__, 500)
            return
        response = task.result()
        head = head_of(response)
        body = memoryview(response.body)
        if response.truncated:
            body, self._keep = body[: len(body) // 2], False
        self._send([memoryview(head), body] if len(body) > RECEIVE_BYTES else [memoryview(head + body)])

    def _refuse(self, reason: str, status: int = 400) -> None:
        self._keep = False
        response = Response(status, {"Content-Type": "text/plain"}, reason.encode())
        self._send([memoryview(head_of(response) + response.body)])

    def _send(self, pieces: list[memoryview]) -> None:
        """Sends what fits now, and the rest when the client has read."""
        if self not in self._server.connections:
            return
        try:
            sent = self._peer.sendmsg(pieces)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._unsent = remaining(pieces, sent)
        if self._unsent:
            self._loop.add_writer(self._peer.fileno(), self._writable)
        else:
            self._sent()

    def _writable(self) -> None:
        self._loop.remove_writer(self._peer.fileno())
        self._send(self._unsent)

    def _sent(self) -> None:
        """All is on its way: the next request, please."""
        if not self._keep:
            self.close()
        elif self._received and self._request is None:
            self._loop.call_soon(self._parse)


def head_of(response: Response) -> bytes:
    """Status line and headers."""
    lines = [f"HTTP/1.1 {response.status} {REASONS.get(response.status, '')}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    lines.append(f"Content-Length: {len(response.body)}\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1")


def remaining(pieces: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of the pieces after the first `sent` bytes."""
    left = []
    for piece in pieces:
        if sent < len(piece):
            left.append(piece[sent:])
        sent = max(0, sent - len(piece))
    return left
