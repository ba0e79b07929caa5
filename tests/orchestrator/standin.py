"""HTTP servers of a few lines that answer as a test wants: S3, a proxy or a captive portal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

PAGE = b"<html><head><title>Welcome</title><body>Please log in<br></body></html>"
HOP = ("transfer-encoding", "content-length", "connection", "server", "date")


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """named in lower case"""
    body: bytes


@dataclass(frozen=True)
class Said:
    """One answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Behaviour = Callable[[Asked], Said]


@contextmanager
def standing_in(behave: Behaviour) -> Iterator[str]:
    """The URL of a server that answers so, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            said = behave(Asked(self.command, self.path, headers, body))
            self.send_response_only(said.status)
            if "Date" not in said.headers:
                self.send_header("Date", self.date_time_string())
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def passed_on(url: str, asked: Asked, leaving_out: tuple[str, ...] = ()) -> Said:
    """What the server at `url` says to the same request, but for some of its headers."""
    kept = {name: value for name, value in asked.headers.items() if name not in ("connection", "expect", *leaving_out)}
    kept.setdefault("content-type", "application/octet-stream")  # urllib would say that it is a form
    request = Request(url + asked.path, data=asked.body or None, headers=kept, method=asked.method)
    try:
        answer = build_opener(ProxyHandler({})).open(request)
    except HTTPError as error:
        answer = error
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
    return Said(answer.status or 500, answer.read(), headers)


def page(status: int = 200) -> Said:
    """A captive portal's, or a proxy's."""
    return Said(status, PAGE, {"Content-Type": "text/html"})


def s3_error(code: str, message: str = "", extra: str = "") -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{extra}'
        "<RequestId>R</RequestId></Error>"
    ).encode()
