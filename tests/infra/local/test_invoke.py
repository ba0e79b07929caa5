"""A stock boto3 client finds what it would find on Lambda: replies, context, logs, versions, Event and DryRun."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradmux.infra.local import Emulator, EmulatorConfig, FaultKind, FaultPlan, ScheduledFault
from tests.infra.local.conftest import CONFIG, SAMPLES, Outcome, client_of

Invoke = Callable[..., Outcome]
ARN = f"arn:aws:lambda:us-east-1:123456789012:function:{CONFIG.function}"


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for something that happens in the background."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_an_event_comes_back(invoke: Invoke) -> None:
    outcome = invoke({"text": "é☃\n", "number": 1.5, "nothing": None})
    assert outcome.status == 200
    assert outcome.error is None
    assert outcome.payload == {"text": "é☃\n", "number": 1.5, "nothing": None}
    assert outcome.response["ExecutedVersion"] == "$LATEST"
    assert re.fullmatch(r"[0-9a-f-]{36}", outcome.response["ResponseMetadata"]["RequestId"])


def test_no_payload_is_an_empty_event(invoke: Invoke) -> None:
    assert invoke(b"").payload == {}


@pytest.mark.parametrize(
    ("name", "qualifier", "version"),
    [
        (CONFIG.function, None, "$LATEST"),
        (CONFIG.function, "live", "1"),
        (f"{CONFIG.function}:live", None, "1"),
        (ARN, None, "$LATEST"),
        (f"{ARN}:1", None, "1"),
        (f"123456789012:function:{CONFIG.function}", "$LATEST", "$LATEST"),
    ],
)
def test_every_way_to_name_the_function(invoke: Invoke, name: str, qualifier: str | None, version: str) -> None:
    options = {"Qualifier": qualifier} if qualifier else {}
    assert invoke(FunctionName=name, **options).response["ExecutedVersion"] == version


def test_the_handler_sees_lambda_s_context(invoke: Invoke) -> None:
    context = base64.b64encode(json.dumps({"custom": {"who": "us"}}).encode()).decode()
    outcome = invoke({"do": "describe"}, FunctionName=f"{ARN}:live", ClientContext=context)
    seen = outcome.payload
    assert seen["request_id"] == outcome.response["ResponseMetadata"]["RequestId"]
    assert seen["arn"] == f"{ARN}:live"
    assert (seen["function"], seen["memory_mb"]) == (CONFIG.function, CONFIG.memory_mb)
    assert 0 < seen["remaining_ms"] <= 1000 * CONFIG.timeout_s
    assert seen["client_context"] == {"who": "us"}
    assert seen["environment"]["AWS_LAMBDA_FUNCTION_NAME"] == CONFIG.function


def test_the_log_tail_has_lambda_s_lines(invoke: Invoke) -> None:
    outcome = invoke({"do": "write", "text": "hello from the handler"})
    request_id = outcome.response["ResponseMetadata"]["RequestId"]
    start, text, end, report = outcome.log.splitlines()
    assert start == f"START RequestId: {request_id} Version: $LATEST"
    assert text == "hello from the handler"
    assert end == f"END RequestId: {request_id}"
    pattern = (
        rf"REPORT RequestId: {request_id}\tDuration: (\d+\.\d\d) ms\tBilled Duration: (\d+) ms"
        rf"\tMemory Size: {CONFIG.memory_mb} MB\tMax Memory Used: (\d+) MB(?:\tInit Duration: (\d+\.\d\d) ms)?"
    )
    found = re.fullmatch(pattern, report)
    assert found
    exact = float(found[1]) + float(found[4] or 0)
    assert exact - 0.02 <= int(found[2]) <= exact + 1.02
    assert 1 <= int(found[3]) <= CONFIG.memory_mb


def test_one_call_s_log_is_not_another_s(invoke: Invoke) -> None:
    assert "first" in invoke({"do": "write", "text": "first"}).log
    assert "first" not in invoke({"do": "write", "text": "second"}).log


def test_a_long_log_keeps_its_end(invoke: Invoke) -> None:
    outcome = invoke({"do": "write", "text": "x" * 20_000 + "end"})
    assert len(outcome.log) == 4096
    assert "xend\n" in outcome.log


def test_no_tail_unless_asked(lambda_client: Any, emulator: Emulator) -> None:
    assert "LogResult" not in lambda_client.invoke(FunctionName=CONFIG.function)


def test_a_dry_run_runs_nothing(invoke: Invoke, emulator: Emulator) -> None:
    before = emulator.statistics()["invocations"]
    assert invoke(InvocationType="DryRun").status == 204
    assert emulator.statistics()["invocations"] == before


@pytest.fixture(scope="module")
def alone() -> Iterator[Emulator]:
    """An emulator with one slot and time for it."""
    config = EmulatorConfig(handler=SAMPLES, preload=(), event_retries=2, event_retry_wait_s=0.02, concurrency=1)
    with Emulator(config) as running:
        yield running


def send(emulator: Emulator, event: dict[str, Any]) -> Any:
    """An Event to it."""
    function, payload = emulator.config.function, json.dumps(event)
    return client_of(emulator, "lambda").invoke(FunctionName=function, InvocationType="Event", Payload=payload)


def test_an_event_runs_in_the_background(alone: Emulator, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    response = send(alone, {"do": "wait", "path": str(sign), "round": 501, "worker": 0})
    assert (response["StatusCode"], response["Payload"].read()) == (202, b"")
    assert [entry for entry in alone.admin.journal() if entry["round"] == 501] == [], "it has not ended"
    sign.touch()
    wait_for(lambda: any(entry["round"] == 501 for entry in alone.admin.journal()))
    (entry,) = [entry for entry in alone.admin.journal() if entry["round"] == 501]
    assert entry["event"]
    assert entry["outcome"] == "ok"


def test_a_duplicate_event_runs_twice(invoke: Invoke, emulator: Emulator) -> None:
    emulator.set_faults(FaultPlan(schedule=(ScheduledFault(502, 0, FaultKind.DUPLICATE),)))
    invoke({"round": 502, "worker": 0}, InvocationType="Event")
    wait_for(lambda: sum(entry["round"] == 502 for entry in emulator.admin.journal()) == 2)
    ids = {entry["request_id"] for entry in emulator.admin.journal() if entry["round"] == 502}
    assert len(ids) == 1


def test_a_failed_event_is_retried_as_often_as_configured(alone: Emulator) -> None:
    before = alone.statistics()["invocations"]
    send(alone, {"do": "fail", "round": 0, "worker": 0})
    wait_for(lambda: alone.statistics()["errors"].get("ValueError") == 3)
    assert alone.statistics()["invocations"] == before + 3


def test_more_events_than_may_run_at_once_wait(alone: Emulator, tmp_path: Path) -> None:
    """Where a synchronous call is refused."""
    before, sign = alone.statistics()["invocations"], tmp_path / "sign"
    for _ in range(3):
        send(alone, {"do": "wait", "path": str(sign)})
    sign.touch()
    wait_for(lambda: alone.statistics()["invocations"] == before + 3)
    assert alone.statistics()["peak_in_flight"] == 1
    assert alone.statistics()["refused"] == {}


def test_the_few_reads_of_the_control_plane(lambda_client: Any, emulator: Emulator) -> None:
    configuration = lambda_client.get_function_configuration(FunctionName=CONFIG.function)
    assert configuration["State"] == "Active"
    assert configuration["MemorySize"] == CONFIG.memory_mb
    assert configuration["Environment"]["Variables"] == {"COLOUR": "blue"}
    assert lambda_client.get_function(FunctionName=f"{ARN}:live")["Configuration"]["Version"] == "1"
    limits = lambda_client.get_account_settings()["AccountLimit"]
    assert limits["ConcurrentExecutions"] == CONFIG.concurrency
