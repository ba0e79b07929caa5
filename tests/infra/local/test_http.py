"""The endpoint's HTTP: whatever way the bytes arrive, requests come out whole and in order."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gradmux.infra.local.http_head import BadHead, Request, parse_head
from gradmux.infra.local.http_server import HttpServer, Response, remaining

BODY_LIMIT = 1_000_000


async def answer(request: Request) -> Response:
    """Tells what it saw; "/fail" fails, "/half" is cut, "/wait" takes a moment."""
    if request.path == "/fail":
        raise KeyError("as asked")
    if request.path == "/wait":
        await asyncio.sleep(0.05)
    body = b"too large" if request.body is None else bytes(request.body)
    return Response(200, {"X-Path": request.path}, body, truncated=request.path == "/half")


class Running:
    """A server in a thread of its own."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.server = HttpServer(self.listener, answer, BODY_LIMIT)
        self._ready.set()
        await self._stop.wait()
        self.server.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.listener.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    server = Running()
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def request(path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def response(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The next response: status, headers, as much of the body as comes."""
    file = client.makefile("rb")
    status = int(file.readline().split()[1])
    headers = {}
    while (line := file.readline().strip()) != b"":
        name, _, value = line.decode().partition(": ")
        headers[name] = value
    return status, headers, file.read(int(headers.get("Content-Length", 0)))


@pytest.mark.parametrize("size_bytes", [0, 1, 60_000, 70_000, BODY_LIMIT])
def test_bodies_come_whole(client: socket.socket, size_bytes: int) -> None:
    body = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    client.sendall(request("/a?b=c", body))
    status, headers, back = response(client)
    assert (status, headers["X-Path"]) == (200, "/a?b=c")
    assert back == body


def test_a_body_over_the_limit_is_read_and_dropped_and_the_connection_lives(client: socket.socket) -> None:
    client.sendall(request("/large", b"x" * (BODY_LIMIT + 1)))
    assert response(client)[2] == b"too large"
    client.sendall(request("/next", b"small"))
    assert response(client)[2] == b"small"


def test_bytes_one_by_one(client: socket.socket) -> None:
    for byte in request("/slow", b"body"):
        client.sendall(bytes([byte]))
    assert response(client)[2] == b"body"


def test_a_body_that_ends_in_pieces(client: socket.socket) -> None:
    whole = request("/pieces", b"abcdef")
    client.sendall(whole[:-4])
    client.sendall(whole[-4:-1])
    client.sendall(whole[-1:])
    assert response(client)[2] == b"abcdef"


def test_requests_sent_ahead_are_answered_in_order(client: socket.socket) -> None:
    client.sendall(request("/wait", b"first") + request("/2", b"second") + request("/3", b"third"))
    file = client.makefile("rb")
    received = b""
    while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b"third"):
        received += file.read1(65536)
    assert received.index(b"first") < received.index(b"second") < received.index(b"third")


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(client: socket.socket) -> None:
    whole = request("/continue", b"body", "Expect: 100-continue")
    client.sendall(whole[:-4])
    assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(whole[-4:])
    assert response(client)[2] == b"body"


def test_close_is_honoured(client: socket.socket) -> None:
    client.sendall(request("/bye", b"x", "Connection: close"))
    assert response(client)[0] == 200
    assert client.recv(1) == b""


def test_a_truncated_response_breaks_off_half_way(client: socket.socket) -> None:
    client.sendall(request("/half", b"0123456789"))
    _, headers, body = response(client)
    assert headers["Content-Length"] == "10"
    assert body == b"01234"


def test_a_handler_that_fails_is_a_500_for_this_client_only(running: Running, client: socket.socket) -> None:
    client.sendall(request("/fail"))
    assert response(client)[0] == 500
    assert client.recv(1) == b""
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as other:
        other.sendall(request("/fine"))
        assert response(other)[0] == 200


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /" + b"x" * 70_000,
    ],
)
def test_nonsense_is_refused_and_hung_up_on(client: socket.socket, nonsense: bytes) -> None:
    client.sendall(nonsense)
    assert response(client)[0] == 400
    with suppress(ConnectionResetError):
        assert client.recv(1) == b""


def test_a_client_that_hangs_up_is_forgotten(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as client:
        client.sendall(request("/wait", b"x" * 100_000))
        client.sendall(request("/wait")[:20])
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as other:
        other.sendall(request("/wait"))
        assert response(other)[0] == 200
        assert len(running.server.connections) == 1


def test_a_client_that_reads_slowly_gets_all_of_it(running: Running) -> None:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(5)
    with client:
        client.connect(("127.0.0.1", running.port))
        client.sendall(request("/large", b"x" * BODY_LIMIT))
        assert response(client)[2] == b"x" * BODY_LIMIT


@pytest.mark.parametrize(
    ("lines", "keep_alive"),
    [
        (b"GET / HTTP/1.1", True),
        (b"GET / HTTP/1.1\r\nConnection: Close", False),
        (b"GET / HTTP/1.0", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive", True),
    ],
)
def test_how_long_a_connection_lives(lines: bytes, keep_alive: bool) -> None:
    assert parse_head(lines).keep_alive is keep_alive


def test_header_names_have_no_case() -> None:
    assert parse_head(b"GET / HTTP/1.1\r\nX-AMZ-Log-Type:  Tail ").headers == {"x-amz-log-type": "Tail"}


def test_an_empty_head_is_bad() -> None:
    with pytest.raises(BadHead):
        parse_head(b"")


@pytest.mark.parametrize(("sent", "left"), [(0, b"abcdef"), (2, b"cdef"), (3, b"def"), (5, b"f"), (6, b"")])
def test_what_remains_to_be_sent(sent: int, left: bytes) -> None:
    assert b"".join(remaining([memoryview(b"abc"), memoryview(b"def")], sent)) == left
