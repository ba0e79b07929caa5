"""What Lambda refuses or reports as failed, by the names that boto3 knows."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gradmux.infra.local import Emulator
from gradmux.infra.local.answers import EVENT_REQUEST_BYTES, RESPONSE_BYTES, SYNC_REQUEST_BYTES
from tests.infra.local.conftest import CONFIG, Outcome

Invoke = Callable[..., Outcome]


def text_of_size(size_bytes: int) -> bytes:
    """A JSON text of exactly this size."""
    return b'"' + b"x" * (size_bytes - 2) + b'"'


@pytest.mark.parametrize(
    "name", ["nobody", f"{CONFIG.function}:nightly", "arn:aws:lambda:us-east-1:123456789012:function:x"]
)
def test_an_unknown_function_or_qualifier_is_not_found(invoke: Invoke, lambda_client: Any, name: str) -> None:
    with pytest.raises(lambda_client.exceptions.ResourceNotFoundException) as refused:
        invoke(FunctionName=name)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404
    assert refused.value.response["Error"]["Message"].startswith("Function not found: arn:aws:lambda:")
    assert refused.value.response["Type"] == "User"
    with pytest.raises(lambda_client.exceptions.ResourceNotFoundException):
        lambda_client.get_function_configuration(FunctionName=name)


def test_an_unknown_operation_is_said_to_be_unknown(lambda_client: Any, emulator: Emulator) -> None:
    with pytest.raises(ClientError, match="UnknownOperationException"):
        lambda_client.delete_function(FunctionName=CONFIG.function)


def test_an_unknown_invocation_type_is_refused(invoke: Invoke, lambda_client: Any) -> None:
    with pytest.raises(lambda_client.exceptions.InvalidParameterValueException):
        invoke(InvocationType="Sometimes")


@pytest.mark.parametrize("payload", [b"{", b"nonsense", b'{"a": NaN}', b"\xff"])
def test_a_payload_that_is_no_json_is_refused(invoke: Invoke, lambda_client: Any, payload: bytes) -> None:
    with pytest.raises(lambda_client.exceptions.InvalidRequestContentException) as refused:
        invoke(payload)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "Could not parse request body into json" in str(refused.value)


@pytest.mark.parametrize("excess", [-1, 0])
def test_a_request_up_to_6_mb_passes(invoke: Invoke, excess: int) -> None:
    assert len(invoke(text_of_size(SYNC_REQUEST_BYTES + excess)).payload or "") == SYNC_REQUEST_BYTES + excess - 2


def test_a_request_over_6_mb_is_too_large(invoke: Invoke, lambda_client: Any) -> None:
    with pytest.raises(lambda_client.exceptions.RequestTooLargeException, match="6291456") as refused:
        invoke(text_of_size(SYNC_REQUEST_BYTES + 1))
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


@pytest.mark.parametrize("excess", [-1, 0])
def test_an_event_up_to_1_mb_passes(invoke: Invoke, excess: int) -> None:
    assert invoke(text_of_size(EVENT_REQUEST_BYTES + excess), InvocationType="Event").status == 202


def test_an_event_over_1_mb_is_too_large(invoke: Invoke, lambda_client: Any) -> None:
    with pytest.raises(lambda_client.exceptions.RequestTooLargeException, match="1048577 byte payload is too large"):
        invoke(text_of_size(EVENT_REQUEST_BYTES + 1), InvocationType="Event")


@pytest.mark.parametrize("excess", [-1, 0])
def test_a_reply_up_to_the_limit_passes(invoke: Invoke, excess: int) -> None:
    outcome = invoke({"do": "reply_of_size", "bytes": RESPONSE_BYTES + excess})
    assert outcome.error is None
    assert len(outcome.payload) + 2 == RESPONSE_BYTES + excess


def test_a_reply_over_the_limit_is_a_failed_function(invoke: Invoke) -> None:
    outcome = invoke({"do": "reply_of_size", "bytes": RESPONSE_BYTES + 1})
    assert (outcome.status, outcome.error) == (200, "Unhandled")
    assert outcome.payload["errorType"] == "Function.ResponseSizeTooLarge"
    assert "6291557" in outcome.payload["errorMessage"]
    assert "6291556" in outcome.payload["errorMessage"]


def test_calls_beyond_the_concurrency_limit_are_throttled(emulator: Emulator, lambda_client: Any) -> None:
    started = threading.Barrier(CONFIG.concurrency + 2)

    def call(seconds: float) -> str:
        started.wait()
        payload = json.dumps({"do": "sleep", "seconds": seconds})
        try:
            lambda_client.invoke(FunctionName=CONFIG.function, Payload=payload)
        except lambda_client.exceptions.TooManyRequestsException as refused:
            return f"{refused.response['ResponseMetadata']['HTTPStatusCode']} {refused.response['Reason']}"
        return "200"

    with ThreadPoolExecutor(CONFIG.concurrency + 2) as callers:
        statuses = list(callers.map(call, [0.15] * (CONFIG.concurrency + 2)))
    assert sorted(statuses) == ["200"] * CONFIG.concurrency + ["429 ConcurrentInvocationLimitExceeded"] * 2
    assert emulator.statistics()["peak_in_flight"] == CONFIG.concurrency
    assert emulator.statistics()["in_flight"] == 0


def test_a_handler_s_exception_is_unhandled_with_its_traceback(invoke: Invoke) -> None:
    outcome = invoke({"do": "fail", "message": "no such batch"})
    assert (outcome.status, outcome.error) == (200, "Unhandled")
    assert outcome.payload["errorType"] == "ValueError"
    assert outcome.payload["errorMessage"] == "no such batch"
    assert any("samples.py" in line and "in fail" in line for line in outcome.payload["stackTrace"])
    assert "[ERROR] ValueError: no such batch\nTraceback (most recent call last):\n" in outcome.log


def test_a_reply_that_is_no_json_is_a_marshal_error(invoke: Invoke) -> None:
    outcome = invoke({"do": "reply_nonsense"})
    assert outcome.error == "Unhandled"
    assert outcome.payload["errorType"] == "Runtime.MarshalError"


def test_a_slow_handler_is_timed_out(invoke: Invoke) -> None:
    outcome = invoke({"do": "sleep", "seconds": 10 * CONFIG.timeout_s})
    assert (outcome.status, outcome.error) == (200, "Unhandled")
    assert outcome.payload["errorType"] == "Sandbox.Timedout"
    assert outcome.payload["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    assert "Duration: 1000.00 ms\tBilled Duration: 1" in outcome.log
    assert outcome.log.endswith("Status: timeout\n")


@pytest.mark.parametrize(
    ("event", "how"),
    [
        ({"status": 3}, "exit status 3"),
        ({"status": 0}, "exit status 0"),
        ({"signal": signal.SIGSEGV}, "signal: segmentation fault"),
        ({"signal": signal.SIGKILL}, "signal: killed"),
        ({"signal": signal.SIGABRT}, "signal: aborted"),
    ],
)
def test_a_dead_worker_is_an_exit_error_and_the_next_call_gets_another(
    invoke: Invoke, event: dict[str, int], how: str
) -> None:
    outcome = invoke({"do": "die", "text": "last words", **event})
    assert (outcome.status, outcome.error) == (200, "Unhandled")
    assert outcome.payload["errorType"] == "Runtime.ExitError"
    assert re.fullmatch(
        rf"RequestId: [0-9a-f-]+ Error: Runtime exited with error: {how}", outcome.payload["errorMessage"]
    )
    assert "last words" in outcome.log
    assert invoke({"still": "there"}).payload == {"still": "there"}


def test_a_handler_that_takes_too_much_memory_is_killed_by_name(invoke: Invoke) -> None:
    outcome = invoke({"do": "eat", "mb": CONFIG.memory_mb + 40, "seconds": 0.5})
    assert outcome.error == "Unhandled"
    assert outcome.payload["errorType"] == "Runtime.OutOfMemory"
    assert outcome.payload["errorMessage"].endswith("signal: killed")
    assert f"Max Memory Used: {CONFIG.memory_mb} MB" in outcome.log
    assert "Error Type: Runtime.OutOfMemory" in outcome.log


def test_semaphores_fail_as_on_lambda(invoke: Invoke) -> None:
    outcome = invoke({"do": "semaphore"})
    assert outcome.payload["errorType"] == "OSError"
    assert outcome.payload["errorMessage"] == "[Errno 38] Function not implemented"
