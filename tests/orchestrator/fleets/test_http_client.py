"""Connections of the fleets' HTTP client: kept, renewed, dropped; and never one request twice."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets import http_client, http_dial
from gradmux.orchestrator.fleets.http_client import Broken, HttpClient, NoConnection, Silent
from gradmux.orchestrator.fleets.http_dial import Dialer, Route

HEAD = b"POST /path HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Peer:
    """One connection as the server has it."""

    number: int
    """from 0"""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> tuple[str, bytes]:
        """(head, body) of the next request. Raises IncompleteReadError when the client hangs up."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
        return head, await self.reader.readexactly(int(length or 0))


Behaviour = Callable[[Peer], Awaitable[None]]


@dataclass
class ScriptedServer:
    """Hands every connection to `behave`, and closes it afterwards."""

    behave: Behaviour
    peers: list[Peer] = field(default_factory=list)
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in self.peers:
            peer.writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(len(self.peers), reader, writer)
        self.peers.append(peer)
        try:
            await self.behave(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def take(self, peer: Peer) -> tuple[str, bytes]:
        self.requests.append(await peer.request())
        return self.requests[-1]


def server_that_says(*responses: bytes) -> ScriptedServer:
    """Each connection answers its n-th request with the n-th response, and then hangs up."""

    async def behave(peer: Peer) -> None:
        for response in responses:
            await server.take(peer)
            peer.writer.write(response)

    return (server := ScriptedServer(behave))


def play(
    server: ScriptedServer, use: Callable[[HttpClient], Awaitable[None]], silence_s: float = 5.0
) -> ScriptedServer:
    async def main() -> None:
        async with server:
            client = HttpClient(Dialer(Route.to(f"http://127.0.0.1:{server.port}", None)), silence_s)
            await use(client)
            client.close()

    asyncio.run(main())
    return server


async def post(client: HttpClient, body: bytes = b"body") -> bytes:
    return bytes((await client.post(HEAD % len(body), body)).body)


def test_a_connection_is_used_again_and_again() -> None:
    async def use(client: HttpClient) -> None:
        for number in range(3):
            assert await post(client, b"x" * number) == b"ok"

    server = play(server_that_says(OK, OK, OK), use)
    assert len(server.peers) == 1
    assert [body for _, body in server.requests] == [b"", b"x", b"xx"]


def test_calls_at_once_have_connections_of_their_own() -> None:
    async def use(client: HttpClient) -> None:
        assert await asyncio.gather(*(post(client) for _ in range(20))) == [b"ok"] * 20
        assert len(client.connections) == 20

    assert len(play(server_that_says(OK, OK), use).peers) == 20


def test_large_requests_and_responses_come_whole() -> None:
    body = bytes(range(256)) * 20_000

    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def use(client: HttpClient) -> None:
        assert await post(client, body) == body
        assert (client.sent_bytes, client.received_bytes) == (len(HEAD % len(body)) + len(body), len(said))

    server = play(server_that_says(said), use)
    assert server.requests[0][1] == body


@pytest.mark.parametrize("wait_s", [0.0, 0.05])
def test_a_connection_that_the_server_closed_meanwhile_is_not_used(wait_s: float) -> None:
    async def use(client: HttpClient) -> None:
        assert await post(client) == b"ok"
        await asyncio.sleep(wait_s)  # 0: the end of the connection has arrived, and the loop has yet to see it
        for connection in client.connections:
            connection.heard_s -= 10.0  # as if it had been idle for so long
        assert await post(client) == b"ok"

    async def behave(peer: Peer) -> None:
        await server.take(peer)
        peer.writer.write(OK)
        peer.writer.close()  # in the same turn of the event loop

    server = ScriptedServer(behave)
    play(server, use)
    assert [len(server.peers), len(server.requests)] == [2, 2]


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"220 mail.example.com ESMTP\r\n\r\n"]
)
def test_what_was_sent_is_never_sent_again(said: bytes) -> None:
    async def use(client: HttpClient) -> None:
        with pytest.raises(Broken):
            await post(client)
        assert not client.connections

    assert len(play(server_that_says(said), use).requests) == 1


def test_silence_has_a_limit() -> None:
    async def behave(peer: Peer) -> None:
        await server.take(peer)
        await asyncio.sleep(5)

    async def use(client: HttpClient) -> None:
        with pytest.raises(Silent, match=r"in 0\.1 s"):
            await post(client)
        assert not client.connections

    server = ScriptedServer(behave)
    play(server, use, silence_s=0.1)
    assert len(server.requests) == 1


def test_a_byte_now_and_then_is_no_answer() -> None:
    """Else whoever drips keeps a call open for ever: headers, chunks and interim responses alike."""

    @dataclass
    class Drip:
        begin: bytes
        drop: bytes

        async def behave(self, peer: Peer) -> None:
            await peer.request()
            peer.writer.write(self.begin)
            for _ in range(500):
                peer.writer.write(self.drop)
                await asyncio.sleep(0.02)

    async def use(client: HttpClient) -> None:
        with pytest.raises(Silent, match=r"no whole answer came in 0\.2 s"):
            await asyncio.wait_for(post(client), 5.0)

    for drip in (
        Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
        Drip(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        Drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        Drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ):
        play(ScriptedServer(drip.behave), use, silence_s=0.2)


def test_a_large_answer_has_the_time_that_its_bytes_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "SLOWEST_BYTES_S", 1000)
    body = b"x" * 4000

    async def behave(peer: Peer) -> None:
        await server.take(peer)
        peer.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n")
        for start in range(0, 4000, 1000):
            peer.writer.write(body[start : start + 1000])
            await asyncio.sleep(0.1)

    async def use(client: HttpClient) -> None:
        assert await post(client) == body

    server = ScriptedServer(behave)
    play(server, use, silence_s=0.2)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
    ],
)
def test_connections_that_are_over_are_not_kept(response: bytes) -> None:
    async def use(client: HttpClient) -> None:
        assert [await post(client), await post(client)] == [b"ok", b"ok"]

    assert len(play(server_that_says(response), use).peers) == 2


def test_a_request_that_is_refused_before_it_was_read_ends_its_connection() -> None:
    """Else the rest of its body would be taken for the next request."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"

    async def behave(peer: Peer) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        if b"Content-Length: 4\r\n" in head:
            await peer.reader.readexactly(4)
            peer.writer.write(OK)
        else:
            peer.writer.write(refusal)
            await asyncio.sleep(5)

    async def use(client: HttpClient) -> None:
        body = bytes(30_000_000)
        assert (await client.post(HEAD % len(body), body)).status == 413
        assert not client.connections
        assert await post(client) == b"ok"

    play(ScriptedServer(behave), use)


def test_words_that_nobody_asked_for_end_a_connection() -> None:
    async def behave(peer: Peer) -> None:
        await server.take(peer)
        peer.writer.write(OK)
        await asyncio.sleep(0.02)
        peer.writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await server.take(peer)

    async def use(client: HttpClient) -> None:
        await post(client)
        await asyncio.sleep(0.05)
        assert not client.connections
        assert await post(client) == b"ok"

    server = ScriptedServer(behave)
    assert len(play(server, use).peers) == 2


def test_a_call_that_is_given_up_ends_its_connection() -> None:
    async def behave(peer: Peer) -> None:
        await server.take(peer)
        await asyncio.sleep(0.1)
        peer.writer.write(OK)

    async def use(client: HttpClient) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await post(client)
        assert not client.connections

    server = ScriptedServer(behave)
    play(server, use)


def test_nobody_listens() -> None:
    async def main() -> None:
        async with ScriptedServer(lambda peer: asyncio.sleep(0)) as server:
            port = server.port
        client = HttpClient(Dialer(Route.to(f"http://127.0.0.1:{port}", None)), 1.0)
        with pytest.raises(NoConnection, match=r"Connect call failed"):
            await post(client)
        client.close()

    asyncio.run(main())


def test_who_waits_for_a_turn_does_not_wait_for_a_server_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and says nothing on them."""
    monkeypatch.setattr(http_dial, "DIALS", 3)
    monkeypatch.setattr(http_dial, "CONNECT_S", 0.3)

    async def main() -> None:
        async with ScriptedServer(lambda peer: asyncio.sleep(60)) as server:
            url = f"https://127.0.0.1:{server.port}"
            client = HttpClient(Dialer(Route.to(url, ssl.create_default_context())), 1.0)
            troubles = await asyncio.gather(*(post(client) for _ in range(50)), return_exceptions=True)
            assert {(type(trouble), str(trouble)) for trouble in troubles} == {
                (NoConnection, "no connection within 0.3 s")
            }
            assert len(server.peers) == 3
            assert isinstance((await asyncio.gather(post(client), return_exceptions=True))[0], NoConnection)
            assert len(server.peers) == 4, "who comes later tries anew"
            client.close()

    asyncio.run(main())


def test_a_proxy_relays_what_is_not_encrypted() -> None:
    """It wants the whole URL in the request line, and its own credentials."""
    route = Route.to("http://lambda.example:8080", None, "http://me:p%40ss@127.0.0.1:3128")
    assert route.request_line("/path") == (
        "POST http://lambda.example:8080/path HTTP/1.1\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n"
    )
    assert Route.to("http://lambda.example", None).request_line("/path") == "POST /path HTTP/1.1\r\n"
    with pytest.raises(PreflightError, match=r"proxy socks5://127\.0\.0\.1: only http://"):
        Route.to("https://lambda.example", None, "socks5://127.0.0.1:1080")


@pytest.mark.parametrize("refusal", [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"", b"nonsense\r\n\r\n"])
def test_a_proxy_that_refuses_is_no_connection(refusal: bytes) -> None:
    async def main() -> None:
        async with server_that_says(refusal) as proxy:
            route = Route.to("https://lambda.example", ssl.create_default_context(), f"127.0.0.1:{proxy.port}")
            client = HttpClient(Dialer(route), 1.0)
            with pytest.raises(NoConnection):
                await post(client)
            client.close()
            assert proxy.requests == [("CONNECT lambda.example:443 HTTP/1.1\r\nHost: lambda.example:443\r\n\r\n", b"")]

    asyncio.run(main())
