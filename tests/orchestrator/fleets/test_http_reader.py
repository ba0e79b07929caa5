"""Responses out of bytes, however these arrive: held against the standard library's own reader."""

from __future__ import annotations

import http.client
import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.fleets import http_reader
from gradmux.orchestrator.fleets.http_reader import (
    BODY_BYTES,
    HEAD_BYTES,
    BadResponse,
    Bodies,
    Response,
    ResponseReader,
)

SCRATCH = 64


def feed(raw: bytes, cuts: list[int] | None = None, *, ends: bool = False) -> list[Response]:
    """All responses of one connection whose bytes come in pieces; `ends`: the server then hangs up."""
    reader = ResponseReader(bytearray(SCRATCH), Bodies())
    found: list[Response] = []
    bounds = sorted({0, len(raw), *(cut for cut in cuts or () if cut < len(raw))})
    for start, end in pairwise(bounds):
        piece = memoryview(raw)[start:end]
        while piece:
            target = reader.buffer()
            count = min(len(target), len(piece))
            target[:count] = piece[:count]
            piece = piece[count:]
            response = reader.received(count)
            if response is not None:
                found.append(response)
    if ends and (response := reader.closed()) is not None:
        found.append(response)
    return found


class FakeSocket:
    """What http.client wants to read from."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def standard_library(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    response = http.client.HTTPResponse(FakeSocket(raw))  # type: ignore[arg-type]
    response.begin()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def chunked(parts: list[bytes], trailer: bytes) -> bytes:
    chunks = b"".join(b"%x;name=value\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return chunks + b"0\r\n" + trailer + b"\r\n"


names = st.from_regex(r"X-[A-Za-z]{1,8}", fullmatch=True)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)


@given(
    status=st.sampled_from([200, 202, 404, 429, 503]),
    headers=st.dictionaries(names, values, max_size=4),
    parts=st.lists(st.binary(max_size=300), max_size=4),
    framing=st.sampled_from(["length", "chunked", "end"]),
    informed=st.booleans(),
    cuts=st.lists(st.integers(0, 1500), max_size=8),
)
def test_reads_what_the_standard_library_reads(
    status: int, headers: dict[str, str], parts: list[bytes], framing: str, informed: bool, cuts: list[int]
) -> None:
    body = b"".join(parts)
    headers = {name.lower(): value for name, value in headers.items()}
    if framing != "end":
        headers |= {"transfer-encoding": "chunked"} if framing == "chunked" else {"content-length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    sent = chunked(parts, b"X-Trailer: 1\r\n") if framing == "chunked" else body
    before = b"HTTP/1.1 100 Continue\r\nX-Not: this\r\n\r\n" if informed else b""
    raw = before + f"HTTP/1.1 {status} Some Reason\r\n{lines}\r\n".encode() + sent

    (response,) = feed(raw, cuts, ends=framing == "end")

    assert (response.status, response.headers, bytes(response.body)) == standard_library(raw)
    assert bytes(response.body) == body
    assert response.keep is (framing != "end")


def test_one_response_after_the_other() -> None:
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    second = b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n"
    third = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    cuts = [len(first), len(first + second)]
    responses = feed(first + second + third, cuts)
    assert [(r.status, bytes(r.body)) for r in responses] == [(200, b"abc"), (204, b""), (200, b"hi")]
    assert all(response.keep for response in responses)


@pytest.mark.parametrize(
    ("raw", "keep"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more that nobody asked for", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", True),
    ],
)
def test_when_a_connection_may_be_used_again(raw: bytes, keep: bool) -> None:
    (response,) = feed(raw)
    assert (bytes(response.body), response.keep) == (b"ok", keep)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"",
    ],
)
def test_what_is_cut_off_is_no_response(raw: bytes) -> None:
    assert feed(raw, ends=True) == []


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/2 200\r\n\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 abc\r\n\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "not a header"),
        (b"HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n\r\n", "not a header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES + 1), "expected at most"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "not understood"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "contradicts"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "not the size of a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "longer than it says"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "switches"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * HEAD_BYTES, "head of"),
    ],
)
def test_what_is_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(BadResponse, match=problem):
        feed(raw)


def test_a_large_body_stays_where_it_was_received() -> None:
    reader = ResponseReader(bytearray(SCRATCH), Bodies())
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    reader.buffer()[: len(head)] = head
    assert reader.received(len(head)) is None
    place = reader.buffer()
    assert len(place) == 1000
    place[:] = bytes(range(250)) * 4
    response = reader.received(1000)
    assert response is not None
    assert place.obj is response.body


@pytest.mark.parametrize("sizes", [(300, 200), (200, 300), (300, 300), (300, 100, 500)])
def test_a_body_that_was_given_back_is_filled_anew(sizes: tuple[int, ...]) -> None:
    """Nothing of the response that it held before is seen, whichever of the two was longer."""
    bodies, memory = Bodies(), set[int]()
    for number, size in enumerate(sizes):
        reader, content = ResponseReader(bytearray(SCRATCH), bodies), bytes([65 + number]) * size
        raw, response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, content), None
        while raw:
            target = reader.buffer()
            count = min(len(target), len(raw))
            target[:count], raw = raw[:count], raw[count:]
            del target
            response = reader.received(count)
        assert response is not None
        assert bytes(response.body) == content
        memory.add(id(response.body))
        bodies.give(response.body)
    assert len(memory) == 1


def test_little_memory_is_kept_for_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_reader, "SPARE_BYTES", 250)
    bodies, given = Bodies(), [bytearray(100) for _ in range(4)]
    for body in given:
        bodies.give(body)
    taken = [bodies.take(100) for _ in range(4)]
    assert sum(any(body is each for each in given) for body in taken) == 2
