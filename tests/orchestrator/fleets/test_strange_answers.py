"""Answers that are not Lambda's: of proxies, gateways and captive portals. One POST each, and one line."""

from __future__ import annotations

import base64
import time
from email.utils import formatdate

import pytest
from aiohttp import web

from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets.calling import Patience
from gradmux.orchestrator.fleets.replies import Answer, Report, retry_after_s
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.strangers import is_page, page_text
from tests.orchestrator.fleets.asking import always, ask, opened, script
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda, answer_well, fail, refuse

pytestmark = pytest.mark.usefixtures("aws_environment")

PAGE = "<html><head><title>Welcome</title></head><body>Please log in<br></body></html>"


def page(status: int, **headers: str) -> web.Response:
    return web.Response(status=status, text=PAGE, content_type="text/html", headers=headers)


# --- what may have run is sent once ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 599])
def test_a_gateway_that_fails_may_have_passed_the_call_on(kind: RealFleet, endpoint: FakeLambda, status: int) -> None:
    endpoint.behave = always(lambda: page(status))
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, len(endpoint.posts)) == (Outcome.UNREACHABLE, 1)
    assert "\n" not in arrival.error
    assert f"HTTP {status}" in arrival.error


@pytest.mark.parametrize("body", ["", "upstream connect error", '{"message": "Endpoint request timed out"}'])
def test_so_may_one_that_does_not_speak_html(kind: RealFleet, endpoint: FakeLambda, body: str) -> None:
    endpoint.behave = always(lambda: web.Response(status=504, text=body))
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, len(endpoint.posts)) == (Outcome.UNREACHABLE, 1)
    assert "HTTP 504" in arrival.error


def test_one_that_is_busy_and_says_when_to_come_again_has_not(kind: RealFleet, endpoint: FakeLambda) -> None:
    busy = always(lambda: page(503, **{"Retry-After": "1"}))
    endpoint.behave = script(busy, answer_well)
    assert ask(kind, endpoint, patience=Patience(unavailable_s=20.0)).outcome is Outcome.OK
    assert len(endpoint.posts) == 2


# --- what is not Lambda's is told as that ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 202, 403, 404])
def test_a_web_page_is_no_answer(kind: RealFleet, endpoint: FakeLambda, status: int) -> None:
    endpoint.behave = always(lambda: page(status))
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, len(endpoint.posts)) == (Outcome.UNREACHABLE, 1)
    assert f"HTTP {status}" in arrival.error
    assert "captive portal" in arrival.error
    assert "\n" not in arrival.error
    assert "<" not in arrival.error


@pytest.mark.parametrize("status", [200, 403, 500])
def test_the_check_before_a_run_tells_it(kind: RealFleet, endpoint: FakeLambda, status: int) -> None:
    endpoint.behave = always(lambda: page(status))
    with opened(kind, endpoint.url) as fleet, pytest.raises(PreflightError, match=f"HTTP {status}") as caught:
        fleet.check()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_redirection_is_told_with_its_place() -> None:
    answer = Answer.from_http(302, {"location": "http://portal.example/login"}, b"")
    assert answer.verdict == "refused"
    assert answer.reason.startswith("HTTP 302 to http://portal.example/login instead of Lambda's answer")


def test_a_proxy_that_wants_a_login_is_told(endpoint: FakeLambda) -> None:
    answer = Answer.from_http(407, {"proxy-authenticate": "Basic"}, b"auth")
    assert answer.verdict == "refused"
    assert "USER:PASSWORD" in answer.reason


def test_a_page_that_the_function_wrote_is_its_answer() -> None:
    headers = {"content-type": "application/json", "x-amz-executed-version": "$LATEST"}
    assert Answer.from_http(200, headers, b'"<html>"').verdict == "answered"
    assert Answer.from_http(200, headers, b"<html>").verdict == "answered"


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"content-type": "text/html; charset=utf-8"}, b"", True),
        ({}, b"\xef\xbb\xbf \n<!DOCTYPE html><p>x", True),
        ({}, b"<HTML>", True),
        ({}, b'{"a": "<html>"}', False),
        ({"content-type": "application/json"}, b"", False),
        ({}, b"<?xml version='1.0'?><Error/>", False),
    ],
)
def test_what_a_page_is(headers: dict[str, str], body: bytes, expected: bool) -> None:
    assert is_page(headers, body) is expected


def test_the_words_of_a_page() -> None:
    assert page_text(PAGE.encode()) == "Welcome"
    assert page_text(b"<html><title> </title><style>p {}</style><p>Please\n log <b>in</b>") == "Please log in"
    assert len(page_text(b"<p>" + b"long " * 99)) == 80


# --- Retry-After -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_that_is_asked_for_is_kept(kind: RealFleet, endpoint: FakeLambda, status: int) -> None:
    """Within a patience that is shorter no second POST goes out."""

    def later() -> web.Response:
        answer = refuse(status, "TooManyRequestsException", "Rate Exceeded.")
        answer.headers["Retry-After"] = "30"
        return answer

    endpoint.behave = always(later)
    assert ask(kind, endpoint).outcome in (Outcome.THROTTLED, Outcome.UNREACHABLE)
    assert len(endpoint.posts) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [("5", 5.0), (" 7 ", 7.0), ("0", 0.0), ("", 0.0), ("soon", 0.0), ("-3", 0.0), ("1.5", 0.0)],
)
def test_seconds(value: str, expected: float) -> None:
    assert retry_after_s({"retry-after": value}) == expected
    assert retry_after_s({}) == 0.0


def test_dates_count_from_the_servers_own_clock() -> None:
    now_s = time.time() + 86_400
    headers = {"retry-after": formatdate(now_s + 20, usegmt=True), "date": formatdate(now_s, usegmt=True)}
    assert retry_after_s(headers) == 20.0
    assert retry_after_s({**headers, "retry-after": formatdate(now_s - 20, usegmt=True)}) == 0.0


# --- logs in JSON ------------------------------------------------------------------------------------------------

JSON_LOG = (
    '{"time":"2026-01-01T00:00:00Z","type":"platform.start","record":{"requestId":"x"}}\n'
    '{"timestamp":"2026-01-01T00:00:00Z","level":"ERROR","message":"out of\\nluck","logger":"root"}\n'
    '{"time":"2026-01-01T00:00:01Z","type":"platform.report","record":{"requestId":"x","metrics":{"durationMs":1500.5,'
    '"billedDurationMs":1701,"memorySizeMB":512,"maxMemoryUsedMB":300%s},"status":"success"}}\n'
)


@pytest.mark.parametrize("init", [None, 560.1])
def test_the_report_of_a_log_in_json(init: float | None) -> None:
    log = JSON_LOG % ("" if init is None else f',"initDurationMs":{init}')
    report = Report.of(base64.b64encode(log.encode()).decode())
    assert report == Report(1.5005, 1.701, 512, 300, init is not None)


def test_a_long_log_in_json_is_read_from_its_end() -> None:
    log = '{"message": "%s"}\n' % ("x" * 3900) + JSON_LOG % ""
    assert Report.of(base64.b64encode(log.encode()[-4096:]).decode()).billed_s == 1.701


@pytest.mark.parametrize("line", ['{"type":"platform.report","record":{}}', '{"type":"platform.report"}', "{", "null"])
def test_a_report_that_says_nothing(line: str) -> None:
    assert Report.of(base64.b64encode(line.encode()).decode()) == Report()


def test_the_functions_own_lines_of_such_a_log(kind: RealFleet, endpoint: FakeLambda) -> None:
    endpoint.behave = always(lambda: fail("Runtime.ExitError", "exited", log=JSON_LOG % ""))
    arrival = ask(kind, endpoint)
    assert arrival.error.splitlines()[1:] == ["out of luck"]
    assert (arrival.billed_s, arrival.worker_s) == (1.701, 1.5005)
