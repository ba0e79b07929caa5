"""The S3 process: moto (and with it the rest of AWS's control plane) on a socket that is already bound.

moto's own server closes the connection after every request and then waits 10 ms for stray data. This one keeps
connections open, one thread for each. Knows nothing of the emulator. Started by `parts.py`; plain objects take the
short way of `s3_objects.py`.
"""

from __future__ import annotations

import io
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from gradmux.infra.local import s3_faults
from gradmux.infra.local.processes import die_with_parent
from gradmux.infra.local.s3_objects import may_write, read_object, write_object

ONE_CONDITION_AT_A_TIME = threading.Lock()
"""moto looks whether an object is there, then writes: two threads could both find that it is not"""


FAULTS = s3_faults.S3Faults()


class KeepAliveHandler(MotoRequestHandler):
    """One connection: reads a request to its end, asks for the answer, sends all of it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def handle_expect_100(self) -> bool:
        """boto3 asks before it sends a body; the answer must leave now, not with the buffer."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def run_wsgi(self) -> None:
        """One request."""
        if self.path == s3_faults.PATH:
            answer = FAULTS.admin(self.command, self.plain_body())
            self.send(answer.status, "", answer.headers.items(), answer.body)
            return
        if hurt := FAULTS.hurt(self.command, self.path):
            self.plain_body()
            self.send(hurt.status, "", hurt.headers.items(), hurt.body)
            return
        if self.command == "GET" and (found := read_object(self.path, self.headers)):
            self.send(found.status, "", found.headers.items(), found.body)
            return
        body: bytes | None = None
        if self.command == "PUT" and may_write(self.path, self.headers):
            body = self.plain_body()
            if stored := write_object(self.path, self.headers, body):
                self.send(stored.status, "", stored.headers.items(), stored.body)
                return
        if self.command == "PUT" and "If-None-Match" in self.headers:
            with ONE_CONDITION_AT_A_TIME:
                self.ask_moto(body)
        else:
            self.ask_moto(body)

    def ask_moto(self, body: bytes | None) -> None:
        """The long way. `body` is what was read of the request already."""
        environ = self.make_environ()
        if body is None:
            chunked = environ["wsgi.input"] is not self.rfile
            body = environ["wsgi.input"].read() if chunked else self.plain_body()
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = True
        answer = b"".join(self.server.app(environ, self.start_response))
        code, _, reason = self._status.partition(" ")
        self.send(int(code), reason, self._headers, answer)

    def plain_body(self) -> bytes:
        """The body of a request that says how long it is."""
        body: bytes = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return body

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


def main() -> None:
    """Entry point: argument 1 is JSON with the listening descriptor and the parent's pid."""
    arguments = json.loads(sys.argv[1])
    die_with_parent(arguments["parent"])
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
