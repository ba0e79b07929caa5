"""The S3 process: moto (and with it the rest of AWS's control plane) on a socket that is already bound.

moto's own server closes the connection after every request and then waits 10 ms for stray data. This one keeps
connections open, one thread for each. Every request passes `s3_door.py` first. Knows nothing of the emulator. Started
by `parts.py`; plain objects take the short way of `s3_objects.py`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from email.message import Message
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from gradmux.infra.local import s3_faults
from gradmux.infra.local.processes import die_with_parent
from gradmux.infra.local.s3_door import Admitted, S3Door
from gradmux.infra.local.s3_objects import ObjectAnswer, may_write, read_object, write_object
from gradmux.infra.local.secret import Secret

ONE_CONDITION_AT_A_TIME = threading.Lock()
"""moto looks whether an object is there, then writes: two threads could both find that it is not"""


REFUSED_BODY_BYTES = 1 << 20
"""A refused request's body is read up to here, so that the connection can go on."""

FAULTS = s3_faults.S3Faults()


class KeepAliveHandler(MotoRequestHandler):
    """One connection: reads a request to its end, asks for the answer, sends all of it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    door: S3Door

    def handle_expect_100(self) -> bool:
        """boto3 asks before it sends a body; the answer must leave now, not with the buffer."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def run_wsgi(self) -> None:
        """One request."""
        headers = plain_headers(self.headers)
        admitted = self.door.admit(self.command, self.path, headers)
        if not isinstance(admitted, Admitted):
            self.refuse(admitted)
            return
        body = self.whole_body()
        refused = self.door.examine(admitted, self.command, self.path, headers, body)
        if answer := refused or self.short_answer(body):
            self.answer(answer)
        elif self.command == "PUT" and "If-None-Match" in self.headers:
            with ONE_CONDITION_AT_A_TIME:
                self.ask_moto(body)
        else:
            self.ask_moto(body)

    def short_answer(self, body: bytes) -> ObjectAnswer | None:
        """Without moto's web stack: our own path, an injected fault, a plain read or write; None for all others."""
        if self.path == s3_faults.PATH:
            return FAULTS.admin(self.command, body)
        if hurt := FAULTS.hurt(self.command, self.path):
            return hurt
        if self.command == "GET":
            return read_object(self.path, self.headers)
        if self.command == "PUT" and may_write(self.path, self.headers):
            return write_object(self.path, self.headers, body)
        return None

    def refuse(self, answer: ObjectAnswer) -> None:
        """Without taking megabytes from a client that is not let in."""
        length = self.headers.get("Content-Length", "0")
        if length.isdigit() and int(length) <= REFUSED_BODY_BYTES and "Transfer-Encoding" not in self.headers:
            self.rfile.read(int(length))
        else:
            self.close_connection = True
        self.answer(answer)

    def ask_moto(self, body: bytes) -> None:
        """The long way."""
        environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = True
        answer = b"".join(self.server.app(environ, self.start_response))
        code, _, reason = self._status.partition(" ")
        self.send(int(code), reason, self._headers, answer)

    def whole_body(self) -> bytes:
        """All of it, whether the request says how long it is or sends it in pieces."""
        body: bytes
        if "Transfer-Encoding" in self.headers:
            body = self.make_environ()["wsgi.input"].read()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return body

    def answer(self, answer: ObjectAnswer) -> None:
        self.send(answer.status, "", answer.headers.items(), answer.body)

    def start_response(
        self, status: str, headers: list[tuple[str, str]], error: Any = None
    ) -> Callable[[bytes], object]:
        """WSGI's callback; moto never uses what it returns."""
        self._status, self._headers = status, headers
        return self.wfile.write

    def send(self, code: int, reason: str, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """The whole answer, in as few packets as it takes."""
        self.send_response(code, reason or None)
        named = False
        for name, value in headers:
            self.send_header(name, value)
            named = named or name.lower() == "content-length"
        if not named:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """No access log."""


def plain_headers(headers: Message) -> dict[str, str]:
    """By name in lower case; what comes twice is joined, as signatures have it."""
    plain: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        plain[name] = f"{plain[name]},{value}" if name in plain else str(value)
    return plain


def main() -> None:
    """Entry point: argument 1 is JSON with the listening descriptor, the region and the parent's pid.

    The key is in AWS's own variables.
    """
    arguments = json.loads(sys.argv[1])
    die_with_parent(arguments["parent"])
    secret = Secret(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    KeepAliveHandler.door = S3Door(secret, arguments["region"])
    FAULTS.admin("POST", json.dumps(arguments["faults"]).encode())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server(
        "127.0.0.1", 0, application, threaded=True, request_handler=KeepAliveHandler, fd=arguments["listen"]
    )
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
