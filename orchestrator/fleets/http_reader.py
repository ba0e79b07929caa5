"""HTTP/1.1 responses out of the bytes of one connection: a state machine that does no I/O.

    reader.buffer()      -> where the next bytes are to be put
    reader.received(n)   -> the response, once it is whole
    reader.closed()      -> the response that only the end of the connection completes

A large body of known length is received where it stays, without a copy. Source: RFC 9112. Read next: `http_client.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

HEAD_BYTES = 1 << 16
"""of status line and headers, at most; trailers too"""
BODY_BYTES = 1 << 26
"""of a body, at most: ten times what Lambda sends"""
SPARE_BYTES = 1 << 26
"""of bodies that are not used, at most"""
HEX = frozenset(b"0123456789abcdefABCDEF")
SWITCHING_PROTOCOLS = 101
BODILESS = (204, 304)
FIRST_FINAL = 200


class BadResponse(Exception):
    """What came is no HTTP response that we understand. One line."""


@dataclass(frozen=True, slots=True)
class Response:
    """One whole response."""

    status: int
    headers: Mapping[str, str]
    """by name in lower case; repeated ones joined by commas"""
    body: bytearray
    keep: bool
    """may the connection be used again?"""


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a response whose body is still to come."""

    status: int
    headers: Mapping[str, str]
    keep: bool
    """as far as version and headers say"""
    length: int | None
    """of the body; None: by chunks, or until the connection ends"""
    chunked: bool


class Bodies:
    """Memory of large bodies that were read, for the next ones: new memory costs more than what is put into it."""

    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        self._spare_bytes = 0

    def take(self, size: int) -> bytearray:
        """So many bytes, whatever they are."""
        if not self._spare:
            return bytearray(size)
        body = self._spare.pop()
        self._spare_bytes -= len(body)
        if len(body) > size:
            del body[size:]
        else:
            body.extend(bytes(size - len(body)))
        return body

    def give(self, body: bytearray) -> None:
        """Nothing looks into it any more: there is no view of it."""
        if self._spare_bytes + len(body) <= SPARE_BYTES:
            self._spare.append(body)
            self._spare_bytes += len(body)


class ResponseReader:
    """Reads one response after the other. `scratch` and `bodies` may be shared by all readers of one thread."""

    def __init__(self, scratch: bytearray, bodies: Bodies) -> None:
        self._scratch, self._bodies = memoryview(scratch), bodies
        self._pending = bytearray()
        """received and not used yet"""
        self._head: Head | None = None
        self._body = bytearray()
        self._filled: int | None = None
        """how much of a body of known length is there; None: the body is not of that kind, or not begun"""

    @property
    def idle(self) -> bool:
        """Has nothing come since the last response?"""
        return self._head is None and not self._pending

    def buffer(self) -> memoryview:
        """Where to put what is received next."""
        return self._scratch if self._filled is None else memoryview(self._body)[self._filled :]

    def received(self, count: int) -> Response | None:
        """So many bytes were put into `buffer()`: the response, when it is whole. Raises BadResponse."""
        if self._filled is not None:
            self._filled += count
            return self._finish() if self._filled == len(self._body) else None
        self._pending += self._scratch[:count]
        while self._head is None:
            end = self._pending.find(b"\r\n\r\n")
            if end < 0:
                _limit(len(self._pending), HEAD_BYTES, "head")
                return None
            head = parse_head(bytes(self._pending[:end]))
            del self._pending[: end + 4]
            self._head = head if head.status >= FIRST_FINAL else None  # 1xx: the response itself follows
        return self._advance(self._head)

    def closed(self) -> Response | None:
        """The connection has ended: the response, if that was how its body ends. None: something is missing."""
        head = self._head
        if head is None or head.length is not None or head.chunked:
            return None
        self._body, self._pending = self._pending, bytearray()
        return self._finish()

    def _advance(self, head: Head) -> Response | None:
        if head.chunked:
            return self._finish() if take_chunks(self._pending, self._body) else None
        if head.length is None:
            _limit(len(self._pending), BODY_BYTES, "body")
            return None
        if len(self._pending) >= head.length:
            self._body = self._pending[: head.length]
            del self._pending[: head.length]
            return self._finish()
        self._body = self._bodies.take(head.length)
        self._filled = len(self._pending)
        self._body[: self._filled] = self._pending
        self._pending.clear()
        return None

    def _finish(self) -> Response:
        """The whole response; what has come beyond it belongs to nobody, so that the connection is of no more use."""
        head, body = self._head, self._body
        assert head is not None
        sized = head.chunked or head.length is not None
        self._head, self._body, self._filled = None, bytearray(), None
        return Response(head.status, head.headers, body, head.keep and sized and not self._pending)


def parse_head(raw: bytes) -> Head:
    """Status line and headers, without the empty line at their end. Raises BadResponse."""
    status_line, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    code = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (len(code) == 3 and code.isascii() and code.isdigit()):
        raise BadResponse(f"not an HTTP/1.1 response: {status_line[:60]!r}")
    status, headers = int(code), dict(_fields(lines))
    if status == SWITCHING_PROTOCOLS:
        raise BadResponse("the server switches to a protocol that nobody asked for")
    options = headers.get("connection", "").lower()
    keep = "keep-alive" in options if version == "HTTP/1.0" else "close" not in options
    encoding = headers.get("transfer-encoding")
    if encoding is not None and (encoding.lower() != "chunked" or "content-length" in headers):
        raise BadResponse(f"transfer encoding {encoding[:60]!r} is not understood, or contradicts Content-Length")
    bodiless = status in BODILESS
    chunked = encoding is not None and not bodiless
    length = 0 if bodiless else None if chunked else _length(headers.get("content-length"))
    return Head(status, headers, keep, length, chunked)


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadResponse(f"not a header: {line[:60]!r}")
        name, value = name.lower(), value.strip(" \t")
        found[name] = f"{found[name]}, {value}" if name in found else value
    yield from found.items()


def _length(text: str | None) -> int | None:
    """Of the body; a length that is repeated, the same each time, counts once."""
    if text is None:
        return None
    lengths = {part.strip() for part in text.split(",")}
    (length,) = lengths if len(lengths) == 1 else ("",)
    if not (length.isascii() and length.isdigit()):
        raise BadResponse(f"Content-Length is {text[:60]!r}")
    _limit(int(length), BODY_BYTES, "body")
    return int(length)


def take_chunks(data: bytearray, body: bytearray) -> bool:
    """Moves whole chunks from `data` to `body`: size in hexadecimal, data, ..., 0, trailers. True: that was the last.

    Raises BadResponse.
    """
    while (end := data.find(b"\r\n")) >= 0:
        start, size = end + 2, _chunk_size(bytes(data[:end]))
        _limit(len(body) + size, BODY_BYTES, "body")
        if size == 0:
            return _take_trailers(data, end)
        if len(data) < start + size + 2:
            return False
        if data[start + size : start + size + 2] != b"\r\n":
            raise BadResponse("a chunk is longer than it says")
        body += memoryview(data)[start : start + size]
        del data[: start + size + 2]
    _limit(len(data), HEAD_BYTES, "chunk size")
    return False


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > 8 or not HEX.issuperset(digits):
        raise BadResponse(f"not the size of a chunk: {line[:60]!r}")
    return int(digits, 16)


def _take_trailers(data: bytearray, end: int) -> bool:
    """Drops the last chunk's line, which ends at `end`, and the trailers, when they are all there."""
    last = data.find(b"\r\n\r\n", end)
    if last < 0:
        _limit(len(data) - end, HEAD_BYTES, "trailers")
        return False
    del data[: last + 4]
    return True


def _limit(size: int, most: int, what: str) -> None:
    if size > most:
        raise BadResponse(f"{what} of {size} bytes or more, expected at most {most}")
