"""The S3 process: moto's server (and with it the rest of AWS's control plane) on a socket that is already bound.

Knows nothing of the emulator. Started by `server.py`.
"""

from __future__ import annotations

import json
import logging
import signal
import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from infra.local.processes import die_with_parent


class KeepAliveHandler(MotoRequestHandler):
    """Keeps connections open, which werkzeug's default (HTTP/1.0) does not, and logs nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

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
