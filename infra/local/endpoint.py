"""Lambda's HTTP API: paths, headers and size limits in, AWS's headers out.

Knows HTTP and the API's names; what a call does is decided in `invocation.py`. Our own admin paths are in `admin.py`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
import uuid
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from hashlib import sha256
from urllib.parse import parse_qs, unquote, urlsplit
from wsgiref.handlers import format_date_time

from gradmux.infra.local import answers
from gradmux.infra.local.admin import Admin
from gradmux.infra.local.answers import Answer
from gradmux.infra.local.call import Call
from gradmux.infra.local.control import account_settings, function_configuration
from gradmux.infra.local.http_head import Request
from gradmux.infra.local.http_server import Response
from gradmux.infra.local.invocation import Invoker
from gradmux.infra.local.names import ADMIN, LATEST, VERSION, FunctionName, function_arn, parse_name
from gradmux.infra.local.sigv4 import Signed, Verifier
from gradmux.infra.local.strangers import stranger

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
    """Answers every request of the HTTP server."""

    invoker: Invoker
    admin: Admin
    verifier: Verifier
    background: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, request: Request) -> Response:
        """One HTTP request."""
        refused = self.refused(request)
        if refused is not None:
            return refused
        path, method = request.path, request.method
        target = target_of(path)
        if target is not None and target.resource == "invocations" and method == "POST":
            return await self.post(request, target)
        if path.startswith(ADMIN):
            return await self.admin.handle(request)
        if target is not None and method == "GET":
            answer = self.describe(target)
        elif path.startswith(ACCOUNT_SETTINGS) and method == "GET":
            answer = Answer(200, json.dumps(account_settings(self.invoker.config)).encode())
        else:
            answer = answers.refusal(404, "UnknownOperationException", f"{method} {path[:80]} is not emulated")
        return response_of(answer, str(uuid.uuid4()))

    def refused(self, request: Request) -> Response | None:
        """The answer to a request that is not let in: it comes from elsewhere, or is not signed with our key."""
        if reason := stranger(request.headers):
            return response_of(answers.stranger(reason), str(uuid.uuid4()))
        if request.body is None:  # nothing is done with it, whosever it is
            return response_of(answers.sync_request_too_large(), str(uuid.uuid4()))
        payload = sha256(request.body).hexdigest()
        found = self.verifier.check(request.method, request.path, request.headers, payload)
        if isinstance(found, Signed):
            return None
        response = response_of(answers.not_let_in(found), str(uuid.uuid4()))
        response.headers["Date"] = formatdate(usegmt=True)  # tells a client whose clock is wrong the time
        return response

    async def post(self, request: Request, target: Target) -> Response:
        """Invoke."""
        call = self.call_of(request, target)
        if isinstance(call, Answer):
            return response_of(call, str(uuid.uuid4()))
        if request.headers.get("x-amz-invocation-type") == "DryRun":
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
        return response_of(answer, call.request_id, call.version, call.log_result)

    def call_of(self, request: Request, target: Target) -> Call | Answer:
        """The call that a POST describes, or the refusal that Lambda's front end gives."""
        headers, payload = request.headers, request.body
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        version = self.resolve(target)
        if isinstance(version, Answer):
            return version
        if kind not in INVOCATION_TYPES:
            return answers.bad_invocation_type(kind)
        assert payload is not None, "refused before"
        if kind == "Event" and len(payload) > answers.EVENT_REQUEST_BYTES:
            return answers.event_request_too_large(len(payload))
        assert target.function is not None
        config = self.invoker.config
        return Call(
            payload=payload,
            arn=function_arn(config.region, config.function, target.function.qualifier).encode(),
            version=version,
            client_context=client_context_of(headers.get("x-amz-client-context", "")),
            tail=headers.get("x-amz-log-type") == "Tail",
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


def client_context_of(header: str) -> bytes:
    """The JSON in X-Amz-Client-Context; empty when there is none that can be read."""
    try:
        return base64.b64decode(header)
    except binascii.Error:
        return b""


def response_of(answer: Answer, request_id: str, version: str | None = None, log_result: str | None = None) -> Response:
    """The answer with the headers that AWS sends."""
    date = format_date_time(time.time())  # by which a client with a wrong clock sets it
    headers = {"Date": date, "Content-Type": "application/json", "x-amzn-RequestId": request_id}
    if answer.error_name is not None:
        headers["x-amzn-ErrorType"] = answer.error_name
    elif version is not None:
        headers["X-Amz-Executed-Version"] = version
    if answer.function_error is not None:
        headers["X-Amz-Function-Error"] = answer.function_error
    if log_result is not None:
        headers["X-Amz-Log-Result"] = log_result
    return Response(answer.status, headers, answer.body, truncated=answer.wire == "truncated")
