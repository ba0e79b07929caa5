"""POSTs over kept connections, one at a time on each, and exactly one per call.

Over aiohttp the whole fleet takes 2.0 to 2.4 times the processor time for each call (docs/performance.md). Knows
nothing of Lambda or signatures: heads come ready made. Errors say whether the request may have run: `NoConnection` that
it did not, `Broken` and `Silent` that nobody knows. Runs in one event loop. Read next: `http_dial.py`,
`http_reader.py`.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

from gradmux.orchestrator.fleets.http_dial import Dialer, NoConnection
from gradmux.orchestrator.fleets.http_reader import BadResponse, Bodies, Response, ResponseReader

__all__ = ["Broken", "HttpClient", "NoConnection", "Silent"]

IDLE_S = 50.0
"""Kept connections are closed after that long without use: before AWS closes them."""
FRESH_S = 1.0
"""A connection that was used so recently is trusted to be still open."""
SWEEP_S = 1.0
"""between two looks for connections that are silent, or idle, for too long; at most"""
SCRATCH_BYTES = 1 << 16
SLOWEST_BYTES_S = 1 << 16
"""An exchange has as much longer as its bytes take at this rate: Lambda's largest request and reply 96 s each, a byte
now and then next to nothing."""
WHOLE_BYTES = 1 << 16
"""Head and body up to this size are sent as one piece."""


class Broken(Exception):
    """The connection ended, or spoke no HTTP, after the request was on its way: it may have run."""


class Silent(Exception):
    """No whole answer came in as long as one may wait: it may have run."""


class HttpClient:
    """Connections to one server, opened when all others are busy and kept for as long as they are used."""

    def __init__(self, dialer: Dialer, silence_s: float) -> None:
        """`silence_s`: longest wait for a whole answer, beside the time that its bytes take (`SLOWEST_BYTES_S`).

        Opens nothing; must be made in the event loop's thread.
        """
        self.silence_s = silence_s
        self.scratch = bytearray(SCRATCH_BYTES)
        """shared by all connections: what they receive is used before another one receives"""
        self.bodies = Bodies()
        """where who has read a large response may give its body back"""
        self.connections: set[Connection] = set()
        self.sent_bytes = self.received_bytes = 0
        self._dialer = dialer
        self._idle: list[Connection] = []
        """the one used last at the end"""
        self._loop = asyncio.get_running_loop()
        self._sweep_s = min(SWEEP_S, silence_s / 4)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def post(self, head: bytes, body: bytes) -> Response:
        """Sends one request and returns what came back, whatever its status. Raises NoConnection, Broken, Silent."""
        self.sent_bytes += len(head) + len(body)
        connection = self._kept() or await self._dialer.dial(lambda: Connection(self))
        response = await connection.exchange(head, body)
        if response.keep and connection.settled:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Drops all connections; calls under way end as Broken."""
        self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.close()

    def _kept(self) -> Connection | None:
        """A connection from before that is still good, if there is one."""
        now_s = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(now_s):
                return connection
            connection.close()
        return None

    def _sweep(self) -> None:
        now_s = self._loop.time()
        stale = [connection for connection in self._idle if now_s - connection.heard_s > IDLE_S or connection.lost]
        for connection in stale:
            connection.close()
        if stale:
            self._idle = [connection for connection in self._idle if not connection.lost]
        for connection in tuple(self.connections):
            if connection.busy and connection.overdue(now_s, self.silence_s):
                connection.fail(Silent(f"no whole answer came in {self.silence_s:g} s"))
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)


class Connection(asyncio.BufferedProtocol):
    """One connection: idle, or busy with one exchange."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._reader = ResponseReader(client.scratch, client.bodies)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self.lost = False
        self.heard_s = self._loop.time()
        """when something came last, or the request went out"""
        self._asked_s, self._moved = 0.0, 0
        """when the exchange began, and how many bytes it has moved"""

    def overdue(self, now_s: float, limit_s: float) -> bool:
        """Has the exchange taken too long, for what it has moved? However often a byte came."""
        return now_s - self._asked_s > limit_s + self._moved / SLOWEST_BYTES_S

    @property
    def busy(self) -> bool:
        return self._waiting is not None

    @property
    def settled(self) -> bool:
        """Is it open, and all of the request sent? A server may refuse a request before it has read it."""
        return not self.lost and self._transport is not None and self._transport.get_write_buffer_size() == 0

    def usable(self, now_s: float) -> bool:
        """Is it still open, as far as one can know without sending?"""
        if self.lost or self._transport is None or self._transport.is_closing():
            return False
        idle_s = now_s - self.heard_s
        return idle_s < FRESH_S or (idle_s < IDLE_S and not self._has_news())

    async def exchange(self, head: bytes, body: bytes) -> Response:
        """One request and its response. Raises Broken, Silent."""
        assert self._transport is not None
        self._waiting = self._loop.create_future()
        self.heard_s = self._asked_s = self._loop.time()
        self._moved = len(head) + len(body)
        if len(head) + len(body) <= WHOLE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        try:
            return await self._waiting
        finally:
            if not self._waiting.done() or self._waiting.cancelled():
                self.close()  # nobody will take what comes yet
            self._waiting = None

    def fail(self, error: Exception) -> None:
        """Ends the exchange, if there is one, and the connection."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.close()

    def close(self) -> None:
        """May be called again."""
        self.lost = True
        self._client.connections.discard(self)
        if self._transport is not None:
            self._transport.abort()

    def _has_news(self) -> bool:
        """Has the server sent something, or hung up, that the event loop has not told yet?"""
        assert self._transport is not None
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # --- asyncio.BufferedProtocol --------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._client.connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_s = self._loop.time()
        self._moved += nbytes
        self._client.received_bytes += nbytes
        try:
            response = self._reader.received(nbytes)
        except BadResponse as error:
            self.fail(Broken(str(error)))
            return
        if response is not None:
            self._answer(response)
        elif self._waiting is None:
            self.close()  # words that nobody asked for

    def eof_received(self) -> None:
        response = self._reader.closed()
        if response is not None:
            self._answer(response)

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(Broken(f"{type(error).__name__}: {error}" if error else "closed by the server before it answered"))

    def _answer(self, response: Response) -> None:
        if self._waiting is None or self._waiting.done():
            self.close()
        else:
            self._waiting.set_result(response)
