"""Calling the function once: does it start, does it speak our version of the contract, how long did it take.

The request is the contract's own `warm` without tasks. Read next: `bucket.py`.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradmux.infra.aws.doctor.needs import Needs
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import ApiError
from gradmux.lambda_worker.contract import (
    PROTOCOL,
    ContractError,
    Reply,
    ReplyMode,
    Request,
    encode_request,
    parse_reply,
)
from gradmux.orchestrator.findings import Finding, failure, warning, well

RUN = "doctor"
INLINE = ReplyMode(mode="inline")
INIT = re.compile(r"Init Duration: ([\d.]+) ms")
USED = re.compile(r"Memory Size: (\d+) MB\s+Max Memory Used: (\d+) MB")
INIT_LIMIT_S = 10.0
REMEDIES = (
    (r"VersionError", "gradmux deploy, so that image and client are of one version"),
    (
        r"exec format error|InvalidEntrypoint",
        "the image is for another architecture: gradmux deploy --architecture ...",
    ),
    (r"OutOfMemory|signal: killed", "gradmux deploy --memory, with more"),
    (r"Sandbox\.Timedout|timed out after", "gradmux deploy --timeout, with more; or more memory, for it is also speed"),
    (r"ImportModuleError|HandlerNotFound|No module named", "the image is no worker of ours: gradmux deploy"),
    (r"ExitError|Extension", "see the function's log in CloudWatch"),
    (r"ReservedFunction", "what is reserved for the function is used up: gradmux deploy --reserved, with more"),
    (r"TooManyRequests", "something else uses the account's concurrency: wait, or reserve some for the function"),
    (r"KMS", "the key that encrypts the function cannot be used by its role"),
    (r"ENI|Subnet|EC2|SecurityGroup", "the function's VPC is not in order: take it out, workers need only S3"),
    (r"AccessDenied", "ask for lambda:InvokeFunction, see `gradmux deploy --policies`"),
)
"""What the failure says -> what to do."""


@dataclass(frozen=True, slots=True)
class Called:
    """One answered invocation."""

    reply: Reply
    log: str
    took_s: float


def examine(door: Door, needs: Needs) -> Iterator[Finding]:
    """Starts, answers, in our version."""
    called = call(door, needs, Request("warm", RUN, 0, 0, 0, needs.bucket, reply=INLINE))
    if isinstance(called, str):
        yield failure("handshake", called, remedy(called))
        return
    init, used = INIT.search(called.log), USED.search(called.log)
    says = f"contract version {PROTOCOL}, answered in {called.took_s:.2f} s"
    if used:
        says += f", {used[2]} of {used[1]} MB used"
    if init is None:
        yield well("handshake", says)
        return
    init_s = float(init[1]) / 1e3
    says += f", cold start {init_s:.2f} s"
    if init_s >= INIT_LIMIT_S:
        yield warning(
            "handshake", says, "Lambda ends INIT after 10 s and begins anew: more memory, for it is also speed"
        )
    else:
        yield well("handshake", says)


def call(door: Door, needs: Needs, request: Request) -> Called | str:
    """The reply to one request, or in one line why there is none."""
    arguments = {"FunctionName": needs.function, "LogType": "Tail", "Payload": encode_request(request)}
    began = time.perf_counter()
    try:
        answer = door.call("lambda", "invoke", arguments)
    except ApiError as error:
        return str(error)
    took_s = time.perf_counter() - began
    body = answer["Payload"].read()
    if answer.get("FunctionError"):
        return function_error(body)
    try:
        reply = parse_reply(body)
    except ContractError as error:
        return f"{type(error).__name__}: {error}"
    log = base64.b64decode(answer.get("LogResult", "")).decode("utf-8", "replace")
    return Called(reply, log, took_s)


def function_error(body: bytes) -> str:
    """A function error in one line."""
    try:
        document: Any = json.loads(body)
    except ValueError:
        document = {}
    told = document if isinstance(document, dict) else {}
    kind, message = told.get("errorType", "function error"), str(told.get("errorMessage", ""))
    return f"{kind}: {message}".replace("\n", " ")


def remedy(text: str) -> str:
    """What to do about a failure."""
    return next((do for pattern, do in REMEDIES if re.search(pattern, text)), "see the function's log in CloudWatch")
