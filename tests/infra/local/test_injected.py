"""Injected delays are waited for, and injected faults look like real ones.

That nothing is added to a delay is shown in virtual time, by `test_virtual_time.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError, ResponseStreamingError

from gradmux.infra.local import DelayPlan, Emulator, EmulatorError, FaultKind, FaultPlan, FaultRate, ScheduledFault
from tests.infra.local.conftest import CONFIG, Outcome

Invoke = Callable[..., Outcome]


def timed(invoke: Invoke, event: dict[str, Any]) -> tuple[float, Outcome]:
    """Seconds that a call takes, seen from the client, and its outcome."""
    began = time.perf_counter()
    outcome = invoke(event)
    return time.perf_counter() - began, outcome


def hurt(emulator: Emulator, kind: FaultKind) -> None:
    emulator.set_faults(FaultPlan(schedule=(ScheduledFault(round=1, worker=2, kind=kind),)))


def test_the_matrix_s_delay_is_the_response_time(emulator: Emulator, invoke: Invoke) -> None:
    emulator.set_delays(DelayPlan.of([[0.1, 0.2], [0.3, 0.4]], slope_s=1.0, base_load=0.5, time_scale=0.5))
    for round, worker, load, expected in [(0, 0, 0.5, 0.05), (1, 1, 0.5, 0.2), (0, 1, 0.9, 0.3), (3, 0, 0.4, 0.1)]:
        seconds, outcome = timed(invoke, {"round": round, "worker": worker, "attempt": 1, "load": load})
        assert seconds >= expected
        assert f"Duration: {1000 * expected:.2f} ms" in outcome.log  # a slow worker is billed


def test_compute_time_hides_in_the_delay(emulator: Emulator, invoke: Invoke) -> None:
    emulator.set_delays(DelayPlan.of([[0.3, 0.05]]))
    seconds, _ = timed(invoke, {"round": 0, "worker": 0, "do": "sleep", "seconds": 0.2})
    assert seconds >= 0.3
    seconds, _ = timed(invoke, {"round": 0, "worker": 1, "do": "sleep", "seconds": 0.2})
    assert seconds >= 0.2


def test_a_delay_beyond_the_timeout_is_a_timeout_in_scaled_time(emulator: Emulator, invoke: Invoke) -> None:
    emulator.set_delays(DelayPlan.of([[3 * CONFIG.timeout_s]], time_scale=0.2))
    seconds, outcome = timed(invoke, {"round": 0, "worker": 0})
    assert seconds >= 0.2 * CONFIG.timeout_s
    assert outcome.payload["errorType"] == "Sandbox.Timedout"
    assert "timed out after 1.00 seconds" in outcome.payload["errorMessage"]


def test_where_a_delay_is_missing_the_call_fails_when_it_is_said_or_at_the_timeout(
    emulator: Emulator, invoke: Invoke
) -> None:
    inf = float("inf")
    emulator.set_delays(DelayPlan.of([[inf, inf]], found_s=[[0.5, inf]], time_scale=0.2))
    seconds, stated = timed(invoke, {"round": 0, "worker": 0, "attempt": 1})
    assert seconds >= 0.1
    assert "Duration: 100.00 ms" in stated.log
    assert (stated.error, stated.payload["errorType"]) == ("Unhandled", "Runtime.ExitError")
    _, unstated = timed(invoke, {"round": 0, "worker": 1, "attempt": 1})
    assert unstated.payload["errorType"] == "Sandbox.Timedout"


def test_other_events_are_not_delayed(emulator: Emulator, invoke: Invoke) -> None:
    emulator.set_delays(DelayPlan.of([[3 * CONFIG.timeout_s]]))
    assert invoke({"do": "echo"}).error is None, "with the delay it would be a timeout"


@pytest.mark.parametrize(
    ("kind", "error_type"),
    [
        (FaultKind.CRASH, "Runtime.ExitError"),
        (FaultKind.OOM, "Runtime.OutOfMemory"),
        (FaultKind.ERROR, "InjectedError"),
        (FaultKind.INIT, "Runtime.ImportModuleError"),
        (FaultKind.TIMEOUT, "Sandbox.Timedout"),
    ],
)
def test_function_errors(emulator: Emulator, invoke: Invoke, kind: FaultKind, error_type: str) -> None:
    hurt(emulator, kind)
    emulator.set_delays(DelayPlan(time_scale=0.1))
    before = emulator.statistics()["faults"].get(kind.value, 0)
    outcome = invoke({"round": 1, "worker": 2, "attempt": 1})
    assert (outcome.status, outcome.error) == (200, "Unhandled")
    assert outcome.payload["errorType"] == error_type
    assert invoke({"round": 1, "worker": 2, "attempt": 2}).error is None
    assert emulator.statistics()["faults"][kind.value] == before + 1


@pytest.mark.parametrize(
    ("kind", "status", "name"),
    [
        (FaultKind.THROTTLE, 429, "TooManyRequestsException"),
        (FaultKind.SERVICE, 500, "ServiceException"),
        (FaultKind.UNAVAILABLE, 503, "ServiceUnavailableException"),
    ],
)
def test_refusals(emulator: Emulator, invoke: Invoke, kind: FaultKind, status: int, name: str) -> None:
    hurt(emulator, kind)
    before = emulator.statistics()["invocations"]
    with pytest.raises(ClientError) as refused:
        invoke({"round": 1, "worker": 2})
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert refused.value.response["Error"]["Code"] == name
    assert emulator.statistics()["invocations"] == before
    assert invoke({"round": 1, "worker": 2}).error is None, "the same attempt, repeated, is let in"
    with pytest.raises(ClientError):
        invoke({"round": 1, "worker": 2})  # the next run finds the same fault


def test_a_truncated_reply_breaks_off(emulator: Emulator, invoke: Invoke) -> None:
    hurt(emulator, FaultKind.TRUNCATE)
    with pytest.raises((ResponseStreamingError, HTTPClientError)):
        invoke({"round": 1, "worker": 2, "text": "x" * 10_000})
    assert invoke({"after": "it"}).payload == {"after": "it"}


def test_a_corrupt_reply_differs_in_one_character(emulator: Emulator, invoke: Invoke) -> None:
    hurt(emulator, FaultKind.CORRUPT)
    event = {"round": 1, "worker": 2, "buffer": "QUJD" * 1000}
    damaged = invoke(event).payload["buffer"]
    assert len(damaged) == 4000
    assert sum(a != b for a, b in zip(damaged, event["buffer"], strict=True)) == 1


def test_rates_hurt_the_same_calls_every_time(emulator: Emulator, invoke: Invoke) -> None:
    emulator.set_faults(FaultPlan(rates=(FaultRate(FaultKind.ERROR, 0.4),), seed=3))

    def hurt_rounds() -> list[int]:
        return [round for round in range(20) if invoke({"round": round, "worker": 0}).error]

    first = hurt_rounds()
    assert 0 < len(first) < 20
    assert hurt_rounds() == first


def test_a_bad_plan_is_refused_and_the_old_one_stays(emulator: Emulator) -> None:
    emulator.set_delays(DelayPlan.of([[0.1]]))
    with pytest.raises(EmulatorError, match="time_scale"):
        emulator.admin._ask("POST", "delays", {"delays_s": [], "time_scale": 0})
    with pytest.raises(EmulatorError, match="no such admin path"):
        emulator.admin._ask("POST", "weather", {})


def test_the_journal_tells_every_post_once(emulator: Emulator, invoke: Invoke) -> None:
    emulator.set_faults(FaultPlan(schedule=(ScheduledFault(700, 1, FaultKind.THROTTLE),)))
    invoke({"round": 700, "worker": 0})
    with pytest.raises(ClientError):
        invoke({"round": 700, "worker": 1})
    entries = [entry for entry in emulator.admin.journal() if entry["round"] == 700]
    assert [(entry["worker"], entry["outcome"]) for entry in entries] == [(0, "ok"), (1, "TooManyRequestsException")]
    assert entries[0]["sandbox"] is not None
    assert entries[1]["sandbox"] is None
    json.dumps(entries)
