"""The head of an HTTP/1.1 request: request line and headers, and what they say of the body.

Pure. Used by `http_server.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


class BadHead(ValueError):
    """Not a request that this server takes; the text is one line."""


@dataclass(slots=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    """with its query, as sent"""
    headers: dict[str, str]
    """names in lower case; what comes twice is joined by a comma"""
    length: int
    """of the body, bytes"""
    keep_alive: bool
    expects_continue: bool
    body: bytes | bytearray | None = b""
    """None when it was larger than the server's limit"""


def parse_head(head: bytes) -> Request:
    """The request that a head (without its empty line) begins. Raises BadHead."""
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, path, version = lines[0].split(" ")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        length = int(headers.get("content-length", "0"))
    except ValueError as error:
        raise BadHead("malformed request head") from error
    if version not in ("HTTP/1.1", "HTTP/1.0") or length < 0:
        raise BadHead("malformed request head")
    if "transfer-encoding" in headers:
        raise BadHead("send a body with Content-Length: other transfer encodings are not taken")
    connection = headers.get("connection", "").lower()
    return Request(
        method=method,
        path=path,
        headers=headers,
        length=length,
        keep_alive=connection != "close" and (version == "HTTP/1.1" or connection == "keep-alive"),
        expects_continue=headers.get("expect", "").lower() == "100-continue",
    )
