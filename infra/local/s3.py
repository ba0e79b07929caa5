"""The S3 process: moto (and with it the rest of AWS's control plane) on a socket that is already bound.

moto's own server closes the connection after every request and then waits 10 ms for stray data. This one keeps
connections open, one thread for each. Knows nothing of the emulator. Started by `server.py`.
"""

from __future__ import annotations

import io
import json
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from infra.local.processes import die_with_parent


class KeepAliveHandler(MotoRequestHandler):
    """One connection: reads a request to its end, asks the application, sends the whole answer."""

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
        environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(self.body(environ))
        environ["wsgi.input_terminated"] = True
        answer = self.server.app(environ, self.start_response)
        body = b"".join(answer)
        self.send_head(body)
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def body(self, environ: dict[str, Any]) -> bytes:
        """The request's body, chunked or not."""
        if environ["wsgi.input"] is not self.rfile:
            chunked: bytes = environ["wsgi.input"].read()
            return chunked
        plain: bytes = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return plain

    def start_response(
        self, status: str, headers: list[tuple[str, str]], error: Any = None
    ) -> Callable[[bytes], object]:
        """WSGI's callback; moto never uses what it returns."""
        self._status, self._headers = status, headers
        return self.wfile.write

    def send_head(self, body: bytes) -> None:
        code, _, reason = self._status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in self._headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in self._headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """No access log."""


def main() -> None:
    """Entry point: argument 1 is JSON with the listening descriptor and the parent's pid."""
    arguments = json.loads(sys.argv[1])
    die_with_parent(arguments["parent"])
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
