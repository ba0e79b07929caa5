"""A Lambda endpoint of a few lines in a process of its own: waits, and answers what a worker might. For benchmarks.

Each invocation is answered `delay_s` after it came, by a contract reply with `size` bytes of result; with a certificate
it speaks TLS. It checks nothing: the emulator is `infra/local`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gradmux.lambda_worker.contract import (
    Order,
    Reply,
    ReplyMode,
    Request,
    Result,
    Task,
    Term,
    Weights,
    encode_result,
    reply_json,
)
from gradmux.orchestrator.fleets.http_dial import allow_descriptors
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes import scheme

RUN = "bench"
LENGTH = re.compile(rb"[Cc]ontent-[Ll]ength: (\d+)")
PLACE = re.compile(rb'"epoch":(\d+),"round":(\d+),"worker":(\d+),"bucket":"[^"]*","attempt":(\d+)')
NAMES = b'"epoch":0,"round":0,"worker":0,"attempt":1'
"""as `make_reply` writes them"""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@contextmanager
def light_lambda(delay_s: float = 0.0, size: int = 64, certificate: Path | None = None) -> Iterator[str]:
    """Runs one; the URL. `certificate` is a PEM file that holds its key, too."""
    command = [sys.executable, "-m", "benchmarks.light_lambda", str(delay_s), str(size)]
    command += [str(certificate)] if certificate else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


class Requests:
    """What fleets send there: tasks of nothing that exists."""

    def build(self, call: Invocation) -> Request:
        tasks = tuple(
            Task(slot, task.job, "specs/0.json", Weights(key="weights/0"), Order(1, 1), 0, 1, (Term(0, 1),))
            for slot, task in enumerate(call.slots)
            if task is not None
        )
        return Request(
            op="gradient", run=RUN, epoch=call.epoch, round=call.round, worker=call.worker, attempt=call.attempt,
            bucket="bucket", data="data/0", tasks=tasks, reply=ReplyMode(prefix="results/"),
        )  # fmt: skip

    def warm(self, call: Invocation) -> Request:
        return self.build(call)


def invocations(count: int, round: int = 0) -> list[Invocation]:
    """One round of so many workers, with one task each."""
    return [Invocation(round, worker, 1, (scheme.Task(0, (0,), (1.0,)),), 0.0) for worker in range(count)]


class Connection(asyncio.Protocol):
    """Answers one request after the other."""

    def __init__(self, delay_s: float, reply: bytes) -> None:
        self._delay_s, self._reply = delay_s, reply
        self._received = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n") + 4
        length = LENGTH.search(self._received, 0, end)
        if end < 4 or length is None or len(self._received) < end + int(length[1]):
            return
        body, self._received = self._received[end : end + int(length[1])], b""
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._answer, body)
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        """The reply, with the names of the invocation that it answers."""
        place = PLACE.search(body)
        names = b'"epoch":%b,"round":%b,"worker":%b,"attempt":%b' % place.groups() if place else b""
        reply = self._reply.replace(NAMES, names, 1) if place else b"{}"
        self._transport.writelines((HEAD % len(reply), reply))


def make_reply(size: int) -> bytes:
    """A reply with a result of about so many bytes, base64 not counted."""
    elements = np.random.default_rng(0).normal(size=max(1, size // 4)).astype(np.float32)
    buffer = encode_result(elements, np.ones(4))
    result = Result(0, 0, "ok", buffer=buffer, size=len(buffer))
    return orjson.dumps(reply_json(Reply("gradient", RUN, 0, 0, 0, 1, (result,))))


async def serve(delay_s: float, size: int, certificate: str | None) -> None:
    """Until standard input ends."""
    allow_descriptors()
    loop, reply, tls, ended = asyncio.get_running_loop(), make_reply(size), None, asyncio.Event()
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    server = await loop.create_server(lambda: Connection(delay_s, reply), "127.0.0.1", 0, backlog=8192, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
