"""Stands between a client and a server on this machine and counts what comes back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import cast
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16


class Relay(ThreadingTCPServer):
    """`url` leads to the server at `target`; `returned` are the bytes that it has answered."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        place = urlsplit(target)
        self.target = (place.hostname or "", place.port or 80)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.returned = 0
        self.lock = threading.Lock()


class _Connection(BaseRequestHandler):
    """One connection: what comes from either side goes to the other."""

    def handle(self) -> None:
        relay = cast("Relay", self.server)
        with socket.create_connection(relay.target) as server:
            back = threading.Thread(target=self._back, args=(relay, server), daemon=True)
            back.start()
            with suppress(OSError):
                while data := self.request.recv(CHUNK_BYTES):
                    server.sendall(data)
                server.shutdown(socket.SHUT_WR)
            back.join()

    def _back(self, relay: Relay, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(CHUNK_BYTES):
                with relay.lock:
                    relay.returned += len(data)
                self.request.sendall(data)
            self.request.shutdown(socket.SHUT_WR)


@contextmanager
def relayed(target: str) -> Iterator[Relay]:
    """A relay to `target`, while the context is open."""
    with Relay(target) as relay:
        thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()
