"""Lambda's HTTP API: paths, headers and size limits in, AWS's headers out.

Knows HTTP and the API's names; what a call does is decided in `invocation.py`. Our own admin paths are in `admin.py`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import parse_qs, unquote, urlsplit

from aiohttp import web

from infra.local import answers
from infra.local.admin import Admin
from infra.local.answers import Answer
from infra.local.call import Call
from infra.local.control import account_settings, function_configuration
from infra.local.invocation import Invoker
from infra.local.names import ADMIN, LATEST, VERSION, FunctionName, function_arn, parse_name

FUNCTIONS = "/2015-03-31/functions/"
ACCOUNT_SETTINGS = "/2016-08-19/account-settings"
INVOCATION_TYPES = ("RequestResponse", "Event", "DryRun")


@dataclass(frozen=True, slots=True)
class Target:
    """What a path asks for: a function, and which of its resources ("invocations", "configuration", "")."""

    function: FunctionName | None
    """None when `text` is no name"""
    text: str
    resource: str


@lru_cache(maxsize=1024)
def target_of(path: str) -> Target | None:
    """The function that a path with query names; None when it is no path below `functions/`."""
    parts = urlsplit(path)
    if not parts.path.startswith(FUNCTIONS):
        return None
    text, _, resource = parts.path[len(FUNCTIONS) :].partition("/")
    qualifier = parse_qs(parts.query).get("Qualifier", [None])[0]
    return Target(parse_name(unquote(text), qualifier), unquote(text), resource)


@dataclass(slots=True)
class Endpoint:
    """The request handler of a low-level aiohttp server."""

    invoker: Invoker
    admin: Admin
    background: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One HTTP request."""
        path = request.raw_path
        target = target_of(path)
        if target is not None and target.resource == "invocations" and request.method == "POST":
            return await self.post(request, target)
        if path.startswith(ADMIN):
            return await self.admin.handle(request)
        if target is not None and request.method == "GET":
            answer = self.describe(target)
        elif path.startswith(ACCOUNT_SETTINGS) and request.method == "GET":
            answer = Answer(200, json.dumps(account_settings(self.invoker.config)).encode())
        else:
            answer = answers.refusal(404, "UnknownOperationException", f"{request.method} {path[:80]} is not emulated")
        return web.Response(status=answer.status, body=answer.body, headers=headers_of(answer, str(uuid.uuid4())))

    async def post(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Invoke."""
        call = await self.call_of(request, target)
        if isinstance(call, Answer):
            return await respond(request, call, headers_of(call, str(uuid.uuid4())))
        if request.headers.get("X-Amz-Invocation-Type") == "DryRun":
            answer: Answer | None = Answer(204)
        else:
            answer = self.invoker.admit(call)
        if answer is None and call.event:
            task = asyncio.create_task(self.invoker.invoke_event(call))
            self.background.add(task)
            task.add_done_callback(self.background.discard)
            answer = Answer(202)
        elif answer is None:
            answer = await self.invoker.invoke(call)
        return await respond(request, answer, headers_of(answer, call.request_id, call.version, call.log_result))

    async def call_of(self, request: web.BaseRequest, target: Target) -> Call | Answer:
        """The call that a POST describes, or the refusal that Lambda's front end gives."""
        payload = await body_of(request, answers.SYNC_REQUEST_BYTES)
        kind = request.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        version = self.resolve(target)
        if isinstance(version, Answer):
            return version
        if kind not in INVOCATION_TYPES:
            return answers.bad_invocation_type(kind)
        if payload is None:
            return answers.sync_request_too_large()
        if kind == "Event" and len(payload) > answers.EVENT_REQUEST_BYTES:
            return answers.event_request_too_large(len(payload))
        assert target.function is not None
        config = self.invoker.config
        return Call(
            payload=payload,
            arn=function_arn(config.region, config.function, target.function.qualifier).encode(),
            version=version,
            client_context=client_context_of(request),
            tail=request.headers.get("X-Amz-Log-Type") == "Tail",
            event=kind == "Event",
        )

    def resolve(self, target: Target) -> str | Answer:
        """The version that runs, or the refusal."""
        config, function = self.invoker.config, target.function
        if function is None:
            return answers.bad_name(target.text)
        if function.name == config.function:
            if function.qualifier in (None, LATEST):
                return LATEST
            if function.qualifier in (VERSION, *config.aliases):
                return VERSION
        return answers.function_not_found(function_arn(config.region, function.name, function.qualifier))

    def describe(self, target: Target) -> Answer:
        """GetFunction and GetFunctionConfiguration."""
        version = self.resolve(target)
        if isinstance(version, Answer):
            return version
        configuration = function_configuration(self.invoker.config, version)
        whole = configuration if target.resource == "configuration" else {"Configuration": configuration}
        return Answer(200, json.dumps(whole).encode())


async def body_of(request: web.BaseRequest, limit: int) -> bytes | None:
    """The request's body; None when it is larger than the limit (it is read to its end, so that the client listens)."""
    if (request.content_length or 0) <= limit:
        body = await request.content.read()
        return body if len(body) <= limit else None
    while await request.content.readany():
        pass
    return None


def client_context_of(request: web.BaseRequest) -> bytes:
    """The JSON in X-Amz-Client-Context; empty when there is none that can be read."""
    try:
        return base64.b64decode(request.headers.get("X-Amz-Client-Context", ""))
    except binascii.Error:
        return b""


def headers_of(
    answer: Answer, request_id: str, version: str | None = None, log_result: str | None = None
) -> dict[str, str]:
    """The headers that AWS sends."""
    headers = {"Content-Type": "application/json", "x-amzn-RequestId": request_id}
    if answer.error_name is not None:
        headers["x-amzn-ErrorType"] = answer.error_name
    elif version is not None:
        headers["X-Amz-Executed-Version"] = version
    if answer.function_error is not None:
        headers["X-Amz-Function-Error"] = answer.function_error
    if log_result is not None:
        headers["X-Amz-Log-Result"] = log_result
    return headers


async def respond(request: web.BaseRequest, answer: Answer, headers: dict[str, str]) -> web.StreamResponse:
    """Sends the answer; a truncated one promises its whole length and hangs up half-way."""
    if answer.wire == "whole":
        return web.Response(status=answer.status, body=answer.body, headers=headers)
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = len(answer.body)
    await response.prepare(request)
    await response.write(bytes(answer.body[: len(answer.body) // 2]))
    if request.transport is not None:
        request.transport.close()
    return response
