"""A Lambda endpoint of a few lines that does exactly what a test tells it to, one POST after the other."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson
from aiohttp import web

from gradmux.lambda_worker.contract import (
    Reply,
    ReplyMode,
    Request,
    Result,
    Timing,
    Weights,
    encode_result,
    parse_request,
    reply_json,
)
from gradmux.lambda_worker.messages import Order, Task, Term
from gradmux.orchestrator.fleets.background import BackgroundLoop
from gradmux.orchestrator.ports import Invocation

GRADIENT = np.array([1.0, -2.0, 0.5], dtype=np.float32)
SUMS = np.array([3.0, 4.0, 2.0, 4.0])


class PlainRequests:
    """Requests that name one task for each slot, and nothing that exists."""

    def build(self, call: Invocation) -> Request:
        tasks = tuple(
            Task(slot, task.job, "spec", Weights(key="weights"), Order(1, 1), 0, 1, (Term(0, 1),))
            for slot, task in enumerate(call.slots)
            if task is not None
        )
        return Request(
            op="gradient", run="run", epoch=call.epoch, round=call.round, worker=call.worker, attempt=call.attempt,
            bucket="bucket", data="data", tasks=tasks, reply=ReplyMode(prefix="results/"),
        )  # fmt: skip

    def warm(self, call: Invocation) -> Request:
        return self.build(call)


@dataclass(frozen=True)
class Posted:
    """One POST that came in."""

    number: int
    """from 0"""
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def request(self) -> Request:
        return parse_request(self.body)


Behaviour = Callable[[Posted], Awaitable[web.StreamResponse]]


def good_reply(request: Request, **changes: Any) -> Reply:
    """What a worker would answer: the same small gradient for every task."""
    results = tuple(
        Result(task.slot, task.job, "ok", buffer=encode_result(GRADIENT, SUMS), size=len(encode_result(GRADIENT, SUMS)))
        for task in request.tasks
    )
    fields: dict[str, Any] = {
        "op": request.op, "run": request.run, "epoch": request.epoch, "round": request.round,
        "worker": request.worker, "attempt": request.attempt, "results": results, "timing": Timing(0.25, 0.05, 0.0),
    }  # fmt: skip
    return Reply(**{**fields, **changes})


def respond(reply: Reply, **headers: str) -> web.Response:
    return web.Response(body=orjson.dumps(reply_json(reply)), headers=headers)


async def answer_well(posted: Posted) -> web.StreamResponse:
    return respond(good_reply(posted.request))


def refuse(status: int, name: str, message: str, **more: str) -> web.Response:
    body = orjson.dumps({"message": message, **more})
    return web.Response(status=status, body=body, headers={"x-amzn-ErrorType": name})


def fail(kind: str, message: str, *, log: str = "", stack: list[str] | None = None) -> web.Response:
    body = {"errorType": kind, "errorMessage": message, **({"stackTrace": stack} if stack else {})}
    headers = {"X-Amz-Function-Error": "Unhandled", "X-Amz-Log-Result": base64.b64encode(log.encode()).decode()}
    return web.Response(body=orjson.dumps(body), headers=headers)


class FakeLambda:
    """The endpoint, on a free port of this machine while the context is open."""

    def __init__(self, behave: Behaviour = answer_well, tls: ssl.SSLContext | None = None) -> None:
        self.behave = behave
        self._tls = tls
        self.posts: list[Posted] = []
        self.connections: set[Any] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._background = BackgroundLoop("fake-lambda")
        self._runner = self._background.run(self._serve())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.run(self._runner.cleanup())
        self._background.stop()

    async def _serve(self) -> web.AppRunner:
        app = web.Application(client_max_size=1 << 25)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048, ssl_context=self._tls)
        await site.start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        posted = Posted(len(self.posts), request.raw_path, dict(request.headers), await request.read())
        self.posts.append(posted)
        return await self.behave(posted)
