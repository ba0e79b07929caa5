"""What the real fleets make of everything Lambda, the network and a worker can answer, against a scripted endpoint."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import numpy as np
import orjson
import pytest
from aiohttp import web
from msgspec import structs

from gradmux.infra.local.answers import RESPONSE_BYTES
from gradmux.lambda_worker.contract import Result, encode_result, gradient_offset, reply_json, stem
from gradmux.lambda_worker.spill import spilled
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.fleets.calling import Function, Ramp
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Invocation, Outcome
from gradmux.orchestrator.store import Keys, MemoryStore, StoreUnavailable
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.asking import Answering, always, ask, opened
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import (
    GRADIENT,
    SUMS,
    FakeLambda,
    PlainRequests,
    Posted,
    answer_well,
    fail,
    good_reply,
    refuse,
    respond,
)

pytestmark = pytest.mark.usefixtures("aws_environment")

REPORT = (
    "START RequestId: 1 Version: 7\nloading weights\nEND RequestId: 1\n"
    "REPORT RequestId: 1\tDuration: 1500.50 ms\tBilled Duration: 1701 ms\tMemory Size: 512 MB\tMax Memory Used: 300 MB"
)


# --- the ordinary case -------------------------------------------------------------------------------------------


def test_a_good_answer(kind: RealFleet, endpoint: FakeLambda) -> None:
    arrival = ask(kind, endpoint, slots=2)
    assert (arrival.outcome, arrival.slots, arrival.error) == (Outcome.OK, (0, 1), "")
    np.testing.assert_array_equal(arrival.results[1].gradient, GRADIENT)
    np.testing.assert_array_equal(arrival.results[1].sums, SUMS)
    assert (arrival.worker_s, arrival.billed_s, arrival.cold) == (0.3, 0.3, False)  # by the worker's clock alone
    (post,) = endpoint.posts
    assert post.path == "/2015-03-31/functions/worker/invocations"
    assert (post.headers["X-Amz-Invocation-Type"], post.headers["X-Amz-Log-Type"]) == ("RequestResponse", "Tail")
    assert post.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=test/")
    assert post.request == PlainRequests().build(call(2, 5, slots=2))


def test_lambdas_own_account_of_time_and_money(kind: RealFleet, endpoint: FakeLambda) -> None:
    async def with_report(posted: Posted) -> web.StreamResponse:
        log = base64.b64encode(f"{REPORT}\tInit Duration: 200.00 ms".encode()).decode()
        return respond(good_reply(posted.request), **{"X-Amz-Log-Result": log})

    endpoint.behave = with_report
    arrival = ask(kind, endpoint)
    assert (arrival.worker_s, arrival.billed_s, arrival.cold) == (1.5005, 1.701, True)


def test_functions_by_qualifier_and_without_log(kind: RealFleet, endpoint: FakeLambda) -> None:
    ask(kind, endpoint, function=Function("arn:aws:lambda:us-east-1:1:function:w", "live"), log_tail=False)
    (post,) = endpoint.posts
    assert (
        post.path
        == "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A1%3Afunction%3Aw/invocations?Qualifier=live"
    )
    assert post.headers["X-Amz-Log-Type"] == "None"


def test_large_replies_and_many_at_once(kind: RealFleet, endpoint: FakeLambda) -> None:
    gradient = np.arange(300_000, dtype=np.float32)
    buffer = encode_result(gradient, SUMS)

    async def large(posted: Posted) -> web.StreamResponse:
        result = Result(0, 0, "ok", buffer=buffer, size=len(buffer))
        return respond(good_reply(posted.request, results=(result,)))

    endpoint.behave = large
    with opened(kind, endpoint.url) as fleet:
        fleet.invoke([call(0, worker) for worker in range(24)])
        arrivals = take_all(fleet)
    assert sorted(a.worker for a in arrivals) == list(range(24))
    for arrival in arrivals:
        np.testing.assert_array_equal(arrival.results[0].gradient, gradient)


@pytest.mark.parametrize("size", [RESPONSE_BYTES - 1, RESPONSE_BYTES])
def test_replies_up_to_awss_limit_come_whole(kind: RealFleet, endpoint: FakeLambda, size: int) -> None:
    async def padded(posted: Posted) -> web.StreamResponse:
        return web.Response(body=orjson.dumps(reply_json(good_reply(posted.request))).ljust(size))

    endpoint.behave = padded
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, set(arrival.results)) == (Outcome.OK, {0})


# --- the function failed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "outcome", "error"),
    [
        (fail("Sandbox.Timedout", "RequestId: 1 Error: Task timed out after 3.00 seconds"), Outcome.TIMED_OUT,
         "Sandbox.Timedout: RequestId: 1 Error: Task timed out after 3.00 seconds; allow more time (cluster.time"),
        (fail("", "2026-01-01T00:00:00Z 1 Task timed out after 3.00 seconds"), Outcome.TIMED_OUT, "2026-01-01"),
        (fail("Runtime.ExitError", "RequestId: 1 Error: Runtime exited with error: exit status 1"), Outcome.CRASHED,
         "Runtime.ExitError: "),
        (fail("Runtime.ExitError", "Runtime exited with error: signal: segmentation fault"), Outcome.CRASHED, ""),
        (fail("Runtime.OutOfMemory", "Runtime exited with error: signal: killed"), Outcome.OUT_OF_MEMORY,
         "; out of memory: give it more (cluster.memory_mb;"),
        (fail("Runtime.ExitError", "Runtime exited with error: signal: killed",
              log=REPORT.replace("Used: 300", "Used: 512")), Outcome.OUT_OF_MEMORY,
         "signal: killed; it took 512 of its 512 MB: give it more (cluster.memory_mb;"),
        (fail("Runtime.ExitError", "Runtime exited with error: signal: killed", log=REPORT), Outcome.CRASHED,
         "\nloading weights"),
        (fail("MemoryError", ""), Outcome.OUT_OF_MEMORY, "MemoryError: "),
        (fail("Runtime.ImportModuleError", "Unable to import module 'handler'"), Outcome.FAILED, "Runtime.Import"),
        (fail("ValueError", "bad size", stack=["  File a, line 1\n", "    f()\n"]), Outcome.FAILED,
         "ValueError: bad size\n  File a, line 1\n    f()"),
        (fail("Function.ResponseSizeTooLarge", "Response payload size exceeded"), Outcome.FAILED, "Function.Resp"),
    ],
)  # fmt: skip
def test_how_a_function_failed(
    kind: RealFleet, endpoint: FakeLambda, failure: web.Response, outcome: Outcome, error: str
) -> None:
    body, headers = failure.body, dict(failure.headers)
    endpoint.behave = always(lambda: web.Response(body=body, headers=headers))
    arrival = ask(kind, endpoint)
    assert arrival.outcome is outcome
    assert error in arrival.error
    assert not arrival.results
    assert len(endpoint.posts) == 1
    assert arrival.billed_s == (1.701 if headers.get("X-Amz-Log-Result") else 0.0)


# --- the reply is not what it should be --------------------------------------------------------------------------


def changed(**changes: Any) -> Answering:
    async def behave(posted: Posted) -> web.StreamResponse:
        return respond(good_reply(posted.request, **changes))

    return behave


@pytest.mark.parametrize(
    "change", [{"run": "other"}, {"epoch": 2}, {"round": 9}, {"worker": 9}, {"attempt": 9}], ids=str
)
def test_answers_to_other_invocations_do_not_count(
    kind: RealFleet, endpoint: FakeLambda, change: dict[str, Any]
) -> None:
    endpoint.behave = changed(**change)
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, arrival.results) == (Outcome.FAILED, {})
    assert "asked was ('run', 3, 2, 5, 1)" in arrival.error


@pytest.mark.parametrize("body", [b"", b"null", b'{"protocol": 3}', b"<html>", b"[1, 2"])
def test_replies_that_are_none(kind: RealFleet, endpoint: FakeLambda, body: bytes) -> None:
    endpoint.behave = always(lambda: web.Response(body=body))
    arrival = ask(kind, endpoint)
    assert arrival.outcome is Outcome.FAILED
    assert arrival.error.startswith("reply: ")


def test_a_worker_of_another_version_ends_the_run(kind: RealFleet, endpoint: FakeLambda) -> None:
    async def newer(posted: Posted) -> web.StreamResponse:
        response = respond(good_reply(posted.request))
        assert isinstance(response.body, bytes)
        return web.Response(body=orjson.dumps({**orjson.loads(response.body), "protocol": 99}))

    endpoint.behave = newer
    with pytest.raises(PreflightError, match="version 99"):
        ask(kind, endpoint)
    endpoint.behave = always(lambda: fail("VersionError", "this worker image speaks contract version 0"))
    with pytest.raises(PreflightError, match="speaks contract version 0"):
        ask(kind, endpoint)


def damaged(buffer: bytes) -> Result:
    return Result(0, 0, "ok", buffer=buffer[:-1] + bytes([buffer[-1] ^ 1]), size=len(buffer))


def test_damaged_results_are_found_out_by_their_checksum(kind: RealFleet, endpoint: FakeLambda) -> None:
    good = encode_result(GRADIENT, SUMS)
    endpoint.behave = changed(results=(damaged(good), Result(1, 0, "ok", buffer=good, size=len(good))))
    arrival = ask(kind, endpoint, slots=2)
    assert (arrival.outcome, arrival.slots) == (Outcome.OK, (1,))
    assert "CRC32" in arrival.error
    endpoint.behave = changed(results=(damaged(good),))
    assert ask(kind, endpoint).outcome is Outcome.FAILED


def test_each_task_ends_as_it_ends(kind: RealFleet, endpoint: FakeLambda) -> None:
    buffer = encode_result(GRADIENT, SUMS)
    ok = Result(0, 0, "ok", buffer=buffer, size=len(buffer))
    bad = Result(1, 0, "failed", error="NonFiniteResult: nan\n  File model.py")
    idle = Result(2, 0, "skipped", distance=0.1)
    stopped = Result(3, 0, "cancelled")
    endpoint.behave = changed(results=(bad, idle, ok, stopped))
    arrival = ask(kind, endpoint, slots=4)
    assert (arrival.outcome, arrival.slots, arrival.skipped) == (Outcome.OK, (0, 2), (2,))
    assert set(arrival.results) == {0}
    assert arrival.error == bad.error
    for results, outcome in (((bad,), Outcome.FAILED), ((stopped,), Outcome.CANCELLED), ((idle,), Outcome.OK)):
        endpoint.behave = changed(results=tuple(structs.replace(one, slot=0) for one in results))
        assert ask(kind, endpoint).outcome is outcome


# --- results in the store ----------------------------------------------------------------------------------------


SPILLED = f"{stem(Keys('run').spill(2, 5), 3, 2, 5, 1)}/0"
"""where the worker of the call that `ask` makes puts its result"""


def test_spilled_results_are_fetched(kind: RealFleet, endpoint: FakeLambda) -> None:
    store, buffer = MemoryStore(), encode_result(GRADIENT, SUMS)
    store.put(SPILLED, buffer)
    whole = spilled(Result(0, 0, "ok", buffer=buffer, size=len(buffer)), SPILLED)
    endpoint.behave = changed(results=(whole,))
    arrival = ask(kind, endpoint, store=store)
    np.testing.assert_array_equal(arrival.results[0].gradient, GRADIENT)
    store.put(SPILLED, buffer[:-4])
    assert "bytes where its header promises" in ask(kind, endpoint, store=store).error
    store.delete([SPILLED])
    arrival = ask(kind, endpoint, store=store)
    assert (arrival.outcome, arrival.error) == (Outcome.FAILED, f"no object {SPILLED}")
    endpoint.behave = changed(results=(structs.replace(whole, key="runs/run/results/ab/1"),))
    assert "is not where it was to be put" in ask(kind, endpoint, store=store).error


class BrokenStore(MemoryStore):
    def get(self, key: str) -> bytes:
        raise StoreUnavailable("bucket b does not answer")


def test_a_store_that_is_gone_ends_the_run_resumably(kind: RealFleet, endpoint: FakeLambda) -> None:
    endpoint.behave = changed(results=(Result(0, 0, "ok", key=SPILLED, size=1, offset=gradient_offset(0)),))
    with pytest.raises(StoreUnavailable, match="does not answer"):
        ask(kind, endpoint, store=BrokenStore())


# --- before and after --------------------------------------------------------------------------------------------


def test_checking_a_function_runs_nothing(kind: RealFleet, endpoint: FakeLambda) -> None:
    endpoint.behave = always(lambda: web.Response(status=204))
    with opened(kind, endpoint.url) as fleet:
        fleet.check(connections=5)
    assert [post.headers["X-Amz-Invocation-Type"] for post in endpoint.posts] == ["DryRun"] * 5
    endpoint.behave = always(lambda: refuse(404, "ResourceNotFoundException", "Function not found: worker"))
    with (
        opened(kind, endpoint.url) as fleet,
        pytest.raises(
            PreflightError, match=r"function worker at http://127.*: ResourceNotFoundException: Function not"
        ),
    ):
        fleet.check()


class HugeRequests(PlainRequests):
    def build(self, call: Invocation) -> Any:
        return structs.replace(super().build(call), run="r" * 7_000_000)


def test_a_request_that_is_too_large_ends_the_run(kind: RealFleet, endpoint: FakeLambda) -> None:
    fleet = kind(Function("worker"), HugeRequests(), MemoryStore(), run="run", endpoint_url=endpoint.url)
    fleet.invoke([call(0, 0)])
    with pytest.raises(ConfigError, match="its request has 7000"):
        fleet.next(None)
    fleet.close()
    assert not endpoint.posts


def test_closing_does_not_wait_for_answers(endpoint: FakeLambda) -> None:
    async def slow(posted: Posted) -> web.StreamResponse:
        await asyncio.sleep(30)
        return await answer_well(posted)

    endpoint.behave = slow
    with opened(LambdaFleet, endpoint.url) as fleet:
        start = fleet.invoke([call(0, worker) for worker in range(5)])
        assert fleet.next(start + 0.2) is None
        fleet.close()
        assert fleet.now() < start + 2.0


def test_connections_are_opened_before_the_first_round_and_used_again(endpoint: FakeLambda) -> None:
    async def answer_late(posted: Posted) -> web.StreamResponse:
        await asyncio.sleep(0.05)  # so that eight are under way at once
        return web.Response(status=204) if posted.body == b"{}" else await answer_well(posted)

    endpoint.behave = answer_late
    with opened(LambdaFleet, endpoint.url) as fleet:
        fleet.check(connections=8)
        assert len(endpoint.connections) == 8
        for round in range(10):
            fleet.invoke([call(round, worker) for worker in range(8)])
            assert len(take_all(fleet)) == 8
    assert len(endpoint.posts) == 88
    assert len(endpoint.connections) == 8


class CountingRamp(Ramp):
    """Counts how often it is asked."""

    def __init__(self, burst: int, per_s: float) -> None:
        super().__init__(burst, per_s)
        self.asked = 0

    def wait_s(self, in_flight: int, now_s: float) -> float:
        self.asked += 1
        return super().wait_s(in_flight, now_s)


def test_calls_grow_at_the_pace_of_the_ramp_and_only_one_waits_by_the_clock(endpoint: FakeLambda) -> None:
    """As thousands of calls do at AWS's pace; what is in flight stays there until all have come."""
    calls, burst, per_s = 40, 4, 200.0
    came_s: list[float] = []
    all_came = asyncio.Event()

    async def answer_last(posted: Posted) -> web.StreamResponse:
        came_s.append(time.monotonic())
        if len(came_s) == calls:
            all_came.set()
        await all_came.wait()
        return await answer_well(posted)

    endpoint.behave = answer_last
    ramp = CountingRamp(burst, per_s)
    with opened(LambdaFleet, endpoint.url, ramp=ramp) as fleet:
        began_s = time.monotonic()
        fleet.invoke([call(0, worker) for worker in range(calls)])
        assert len(take_all(fleet)) == calls
        first = ramp.asked
        fleet.invoke([call(1, worker) for worker in range(calls)])
        assert len(take_all(fleet)) == calls
    earliest_s = [max(0, number + 1 - burst) / per_s for number in range(calls)]
    assert all(at_s - began_s >= least_s for at_s, least_s in zip(came_s, earliest_s, strict=False))
    assert first <= burst + 3 * (calls - burst)
    assert ramp.asked - first == calls, "so many sandboxes are there by now"


def test_no_region_or_credentials_no_fleet(kind: RealFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(PreflightError, match="no AWS credentials"):
        kind(Function("worker"), PlainRequests(), MemoryStore(), run="run")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(PreflightError, match="no AWS region"):
        kind(Function("worker"), PlainRequests(), MemoryStore(), run="run")
