"""Lambda's Runtime API for one worker: it asks for the next invocation, and posts what came of it.

A server of its own for each worker, because a runtime knows its API by host and port alone (a path would be lost in
`init/error`). Knows no processes. Read next: `worker.py`.
Source: "Using the Lambda runtime API", AWS documentation; version 2018-06-01.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gradmux.infra.local.answers import RESPONSE_BYTES

VERSION = "/2018-06-01/runtime/"
POSTED = re.compile(r"invocation/([^/]+)/(response|error)")
CLOSING_CHECK_S = 0.2


class Kind(StrEnum):
    """What a runtime said."""

    READY = "next"
    """asks for an invocation"""
    RESPONSE = "response"
    ERROR = "error"
    """the handler raised"""
    TOO_LARGE = "too large"
    """a response that the API refused"""
    INIT_ERROR = "init/error"
    """the handler could not be loaded"""


@dataclass(frozen=True, slots=True)
class Said:
    """One request of the runtime's."""

    kind: Kind
    request_id: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Event:
    """One invocation on its way to the runtime."""

    request_id: str
    payload: bytes
    deadline_ms: int
    """since 1970"""
    arn: str
    client_context: str = ""
    """JSON"""

    def headers(self) -> dict[str, str]:
        """As AWS names them."""
        headers = {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(self.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self.arn,
        }
        return headers | ({"Lambda-Runtime-Client-Context": self.client_context} if self.client_context else {})


class RuntimeApi:
    """The server, in threads of its own, on 127.0.0.1."""

    def __init__(self) -> None:
        self.said: queue.Queue[Said] = queue.Queue()
        self.events: queue.Queue[Event] = queue.Queue()
        self.closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """AWS_LAMBDA_RUNTIME_API"""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def next_event(self) -> Event | None:
        """Blocks until there is one; None when the server closes."""
        while not self.closing.is_set():
            try:
                return self.events.get(timeout=CLOSING_CHECK_S)
            except queue.Empty:
                continue
        return None

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: RuntimeApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A runtime that was killed hangs up in the middle; anything else is a mistake of ours, to be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of the runtime's."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_GET(self) -> None:
        if self.path != f"{VERSION}invocation/next":
            self._answer(404, {"errorType": "NotFound", "errorMessage": self.path})
            return
        api = self.server.api
        api.said.put(Said(Kind.READY))
        event = api.next_event()
        if event is None:
            self.close_connection = True
            return
        self.send_response(200)
        for name, value in event.headers().items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(event.payload)))
        self.end_headers()
        self.wfile.write(event.payload)
        self.wfile.flush()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix(VERSION)
        posted = POSTED.fullmatch(path)
        if path == "init/error":
            self._take(Said(Kind.INIT_ERROR, body=body))
        elif posted is None:
            self._answer(404, {"errorType": "NotFound", "errorMessage": self.path})
        elif posted[2] == "response" and len(body) > RESPONSE_BYTES:
            self.server.api.said.put(Said(Kind.TOO_LARGE, posted[1], body))
            told = f"Exceeded maximum allowed payload size ({RESPONSE_BYTES} bytes)."
            self._answer(413, {"errorType": "RequestEntityTooLarge", "errorMessage": told})
        else:
            self._take(Said(Kind(posted[2]), posted[1], body))

    def _take(self, said: Said) -> None:
        self.server.api.said.put(said)
        self._answer(202, {"status": "OK"})

    def _answer(self, status: int, document: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """No access log."""
