"""What Lambda says when it refuses a call or when a function fails: AWS's status codes, names and JSON shapes.

Pure. A refusal is an HTTP error of the API; a function error is a 200 with `X-Amz-Function-Error`.
Read next: `report.py` for the log tail, `invocation.py` for who decides.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gradmux.infra.local.sigv4 import OTHERS_SKEW_S, Fault, Refusal

SYNC_REQUEST_BYTES = 6_291_456
EVENT_REQUEST_BYTES = 1_048_576
RESPONSE_BYTES = 6_291_556

MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)
INVALID_TOKEN = ("UnrecognizedClientException", "The security token included in the request is invalid.")
NOT_LET_IN: Mapping[Fault, tuple[str, str]] = {
    Fault.MISSING: ("MissingAuthenticationTokenException", "Missing Authentication Token"),
    Fault.MALFORMED: ("IncompleteSignatureException", ""),
    Fault.UNKNOWN_KEY: INVALID_TOKEN,
    Fault.TOKEN: INVALID_TOKEN,
}
"""fault -> AWS's name and text; all others are mismatches"""

ERROR_TYPE = re.compile(rb'"errorType": ?"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller gets, before HTTP."""

    status: int
    body: bytes | bytearray = b""
    error_name: str | None = None
    """x-amzn-ErrorType, on refusals"""
    function_error: str | None = None
    """X-Amz-Function-Error: Unhandled"""
    wire: Literal["whole", "truncated"] = "whole"
    """truncated: the connection ends in the middle of the body"""

    @property
    def name(self) -> str:
        """ "ok", or AWS's or the handler's name of what went wrong."""
        if self.error_name is not None:
            return self.error_name
        if self.function_error is None:
            return "ok"
        found = ERROR_TYPE.search(self.body)
        return found[1].decode() if found else self.function_error


def refusal(status: int, name: str, message: str, **more: str) -> Answer:
    """An error of the Lambda API itself; the function did not run."""
    side = "User" if status < 500 else "Service"
    return Answer(status, json.dumps({**more, "Type": side, "message": message}).encode(), error_name=name)


def function_not_found(arn: str) -> Answer:
    return refusal(404, "ResourceNotFoundException", f"Function not found: {arn}")


def bad_name(text: str) -> Answer:
    message = f"1 validation error detected: Value '{text[:80]}' at 'functionName' failed to satisfy constraint"
    return refusal(400, "ValidationException", message)


def bad_invocation_type(text: str) -> Answer:
    message = f"Value '{text[:80]}' at 'invocationType' must be one of: Event, RequestResponse, DryRun"
    return refusal(400, "InvalidParameterValueException", message)


def not_json(reason: str) -> Answer:
    return refusal(400, "InvalidRequestContentException", f"Could not parse request body into json: {reason}")


def sync_request_too_large() -> Answer:
    message = f"Request must be smaller than {SYNC_REQUEST_BYTES} bytes for the InvokeFunction operation"
    return refusal(413, "RequestTooLargeException", message)


def event_request_too_large(size_bytes: int) -> Answer:
    message = (
        f"{size_bytes} byte payload is too large for the Event invocation type (limit {EVENT_REQUEST_BYTES} bytes)"
    )
    return refusal(413, "RequestTooLargeException", message)


def too_many_requests() -> Answer:
    return refusal(429, "TooManyRequestsException", "Rate Exceeded.", Reason="ConcurrentInvocationLimitExceeded")


def service_exception() -> Answer:
    return refusal(500, "ServiceException", "The Lambda service encountered an internal error (injected).")


def service_unavailable() -> Answer:
    return refusal(503, "ServiceUnavailableException", "Service Unavailable (injected).")


def stranger(reason: str) -> Answer:
    """A request that no client of ours sends."""
    return refusal(403, "AccessDeniedException", reason)


def not_let_in(why: Refusal) -> Answer:
    """A request that is not signed with the function's own account, in the words of AWS's front end."""
    name, message = NOT_LET_IN.get(why.fault, ("InvalidSignatureException", MISMATCH))
    if why.fault is Fault.SKEWED:
        message = _skewed(why)
    elif why.fault in (Fault.MALFORMED, Fault.SCOPE):
        message = why.detail
    return Answer(403, json.dumps({"message": message}).encode(), error_name=name)


def _skewed(why: Refusal) -> str:
    """AWS tolerates five minutes either way."""
    now = _stamp(why.now_s)
    if why.stamp < now:
        return (
            f"Signature expired: {why.stamp} is now earlier than {_stamp(why.now_s - OTHERS_SKEW_S)} ({now} - 5 min.)"
        )
    limit = _stamp(why.now_s + OTHERS_SKEW_S)
    return f"Signature not yet current: {why.stamp} is still later than {limit} ({now} + 5 min.)"


def _stamp(when_s: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(when_s))


def expired_token() -> Answer:
    return refusal(403, "ExpiredTokenException", "The security token included in the request is expired (injected).")


def function_error(kind: str, message: str) -> Answer:
    """A failure that Lambda, not the handler, words."""
    return Answer(200, json.dumps({"errorType": kind, "errorMessage": message}).encode(), function_error="Unhandled")


def timed_out(request_id: str, timeout_s: float) -> Answer:
    return function_error(
        "Sandbox.Timedout", f"RequestId: {request_id} Error: Task timed out after {timeout_s:.2f} seconds"
    )


def exited(request_id: str, how: str) -> Answer:
    return function_error("Runtime.ExitError", f"RequestId: {request_id} Error: Runtime exited with error: {how}")


def out_of_memory(request_id: str) -> Answer:
    message = f"RequestId: {request_id} Error: Runtime exited with error: signal: killed"
    return function_error("Runtime.OutOfMemory", message)


def init_failed(request_id: str, reason: str) -> Answer:
    return function_error("Runtime.ImportModuleError", f"RequestId: {request_id} Error: {reason}")


def response_too_large(size_bytes: int) -> Answer:
    message = (
        f"Response payload size ({size_bytes} bytes) exceeded maximum allowed payload size ({RESPONSE_BYTES} bytes)."
    )
    return function_error("Function.ResponseSizeTooLarge", message)
