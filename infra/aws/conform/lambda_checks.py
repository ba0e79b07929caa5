"""What we assume of Lambda's Invoke API: limits to the byte, refusals by name, logs, errors of functions, signatures.

Asks stock boto3, one POST a check, and looks at status and headers. The function is a worker of ours, so that its
answers are known. Read next: `store_checks.py`.
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError

from gradmux.infra.aws.conform.checks import Check, Place, Skipped, require
from gradmux.lambda_worker.contract import (
    MAX_EVENT_BYTES,
    MAX_REQUEST_BYTES,
    ReplyMode,
    Request,
    encode_request,
    parse_reply,
)
from gradmux.orchestrator.fleets.replies import Report

RUN = "conform"
AT_ONCE = 4
ANSWER_S = 120.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer."""

    status: int
    name: str
    """of the refusal; empty where there is none"""
    headers: dict[str, str]
    body: bytes


def lambda_checks(place: Place) -> list[Check]:
    """In an order in which the first ones are the ones that all else needs."""
    caller = Caller(place)
    return [
        Check("lambda.dry-run", "a dry run runs nothing and answers 204", caller.dry_run),
        Check("lambda.unknown", "an unknown function is ResourceNotFoundException, 404", caller.unknown),
        Check("lambda.handshake", "a worker answers in our contract's version", caller.handshake),
        Check("lambda.qualifier", "$LATEST is a version of every function", caller.qualifier),
        Check("lambda.log-tail", "LogType Tail brings the report of time and memory, as text or JSON", caller.log_tail),
        Check("lambda.cold-start", "the report of a cold start, and of no other, has an Init Duration", caller.cold),
        Check("lambda.function-error", "an error of the function is 200 with X-Amz-Function-Error", caller.error_shape),
        Check("lambda.not-json", "a body that is no JSON is InvalidRequestContentException, 400", caller.not_json),
        Check("lambda.largest-request", f"{MAX_REQUEST_BYTES:,} bytes are taken", caller.largest),
        Check("lambda.too-large-request", "one byte more is RequestTooLargeException, 413", caller.too_large),
        Check("lambda.event", "an event is accepted with 202, and no answer", caller.event),
        Check("lambda.largest-event", f"an event of {MAX_EVENT_BYTES:,} bytes is taken", caller.largest_event),
        Check("lambda.too-large-event", "one byte more is RequestTooLargeException, 413", caller.too_large_event),
        Check("lambda.at-once", f"{AT_ONCE} calls at once are all answered", caller.at_once),
        Check("lambda.signature", "a wrong signature is refused with 403", caller.wrong_signature),
        Check("lambda.date", "answers carry a Date, by which a wrong clock is set", caller.date),
    ]


class Caller:
    """Asks Lambda. Each check's method returns what it saw."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client = _client(place, place.session)

    def dry_run(self) -> str:
        seen = self._invoke(b"{}", kind="DryRun")
        require(seen.status == 204, "204", _told(seen))
        return "204"

    def unknown(self) -> str:
        seen = self._invoke(b"{}", function=f"{self._place.function.rpartition(':')[2][:40]}-no-such")
        require((seen.status, seen.name) == (404, "ResourceNotFoundException"), "404 ResourceNotFound", _told(seen))
        return _told(seen)

    def handshake(self) -> str:
        return f"{parse_reply(self._answered(_warm()).body).op}, {len(_warm())} bytes asked"

    def qualifier(self) -> str:
        return _told(self._answered(_warm(), qualifier="$LATEST"))

    def log_tail(self) -> str:
        report = self._report()
        require(report.memory_mb > 0 and report.max_memory_mb > 0, "a report of time and memory", report)
        return f"billed {report.billed_s:.3f} s, {report.max_memory_mb} of {report.memory_mb} MB"

    def cold(self) -> str:
        report = self._report()
        require(not report.cold, "no Init Duration in a warm call's report", report)
        return "the second call was warm"

    def error_shape(self) -> str:
        seen = self._invoke(b'{"protocol": 999999}')
        require(seen.status == 200, "200", _told(seen))
        require("x-amz-function-error" in seen.headers, "X-Amz-Function-Error", sorted(seen.headers))
        told = json.loads(seen.body)
        require({"errorType", "errorMessage"} <= told.keys(), "errorType and errorMessage", sorted(told))
        return f"{seen.headers['x-amz-function-error']}, {told['errorType']}"

    def not_json(self) -> str:
        seen = self._invoke(b"{")
        require((seen.status, seen.name) == (400, "InvalidRequestContentException"), "400", _told(seen))
        return _told(seen)

    def largest(self) -> str:
        seen = self._invoke(_sized(MAX_REQUEST_BYTES))
        require(seen.status == 200, "200", _told(seen))
        return "taken"

    def too_large(self) -> str:
        return self._too_large(MAX_REQUEST_BYTES + 1, "RequestResponse")

    def event(self) -> str:
        seen = self._invoke(_warm(), kind="Event")
        require((seen.status, seen.body) == (202, b""), "202 without a body", _told(seen))
        return "202"

    def largest_event(self) -> str:
        seen = self._invoke(_sized(MAX_EVENT_BYTES), kind="Event")
        require(seen.status == 202, "202", _told(seen))
        return "taken"

    def too_large_event(self) -> str:
        return self._too_large(MAX_EVENT_BYTES + 1, "Event")

    def at_once(self) -> str:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = list(threads.map(lambda _: self._invoke(_warm()), range(AT_ONCE)))
        throttled = [seen for seen in answers if seen.status == 429]
        for seen in throttled:
            require(seen.name == "TooManyRequestsException", "TooManyRequestsException", _told(seen))
        require(not throttled, "all answered", f"{len(throttled)} of {AT_ONCE} throttled: the account's limit?")
        require(all(seen.status == 200 for seen in answers), "200", [_told(seen) for seen in answers])
        return f"{AT_ONCE} answered"

    def wrong_signature(self) -> str:
        credentials = self._place.session.get_credentials()
        if credentials is None:
            raise Skipped("there are no credentials to be wrong about")
        frozen = credentials.get_frozen_credentials()
        liar = _client(self._place, self._place.session, frozen.access_key or "", "wrong", frozen.token)
        seen = _seen(liar, FunctionName=self._place.function, Payload=b"{}", InvocationType="DryRun")
        require(seen.status == 403, "403", _told(seen))
        return _told(seen)

    def date(self) -> str:
        seen = self._invoke(b"{}", kind="DryRun")
        require("date" in seen.headers, "a Date header", sorted(seen.headers))
        return seen.headers["date"]

    def _report(self) -> Report:
        seen = self._answered(_warm(), log="Tail")
        told = seen.headers.get("x-amz-log-result", "")
        require(bool(told), "X-Amz-Log-Result", sorted(seen.headers))
        base64.b64decode(told, validate=True)
        return Report.of(told)

    def _too_large(self, size: int, kind: str) -> str:
        seen = self._invoke(_sized(size), kind=kind)
        require((seen.status, seen.name) == (413, "RequestTooLargeException"), "413", _told(seen))
        return _told(seen)

    def _answered(self, payload: bytes, **options: str) -> Seen:
        seen = self._invoke(payload, **options)
        require(seen.status == 200 and "x-amz-function-error" not in seen.headers, "an answer", _told(seen))
        return seen

    def _invoke(
        self,
        payload: bytes,
        *,
        kind: str = "RequestResponse",
        log: str = "None",
        function: str = "",
        qualifier: str = "",
    ) -> Seen:
        more = {"Qualifier": qualifier} if qualifier else {}
        name = function or self._place.function
        return _seen(self._client, FunctionName=name, Payload=payload, InvocationType=kind, LogType=log, **more)


def _client(place: Place, session: Any, *credentials: str | None) -> Any:
    """boto3's, which asks once."""
    keys = dict(zip(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), credentials, strict=False))
    config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, read_timeout=ANSWER_S)
    return session.create_client("lambda", endpoint_url=place.lambda_url, config=config, **keys)


def _seen(client: Any, **arguments: Any) -> Seen:
    try:
        answer = client.invoke(**arguments)
    except ClientError as error:
        told: Any = error.response
        about = told["ResponseMetadata"]
        message = str(told.get("Error", {}).get("Message", "")).encode()
        return Seen(about["HTTPStatusCode"], str(told["Error"].get("Code", "")), about["HTTPHeaders"], message)
    about = answer["ResponseMetadata"]
    return Seen(about["HTTPStatusCode"], "", about["HTTPHeaders"], answer["Payload"].read())


def _warm() -> bytes:
    return encode_request(Request("warm", RUN, 0, 0, 0, "bucket", reply=ReplyMode(mode="inline")))


def _sized(size: int) -> bytes:
    """A request of so many bytes that a worker refuses: what the service makes of its size is asked here."""
    frame = b'{"protocol": 999999, "filler": ""}'
    return frame[:-2] + b"x" * (size - len(frame)) + frame[-2:]


def _told(seen: Seen) -> str:
    return " ".join(f"{seen.status} {seen.name} {seen.body[:120].decode('utf-8', 'replace')}".split())
