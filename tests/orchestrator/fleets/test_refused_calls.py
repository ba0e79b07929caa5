"""Calls that Lambda refuses, or that get no answer: which are made again, which once, and what is told of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
from aiohttp import web

from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.refusals import LASTING
from gradmux.orchestrator.ports import Outcome
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.asking import always, ask, opened, script
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda, Posted, answer_well, refuse

pytestmark = pytest.mark.usefixtures("aws_environment")

# --- what did not run is repeated --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        lambda: refuse(429, "TooManyRequestsException", "Rate Exceeded."),
        lambda: refuse(500, "ServiceException", "internal"),
        lambda: refuse(502, "ENILimitReachedException", "no network interface"),
        lambda: refuse(502, "EC2ThrottledException", "EC2 throttled Lambda"),
        lambda: refuse(502, "SubnetIPAddressLimitReachedException", "no addresses"),
        lambda: refuse(502, "ResourceNotReadyException", "the VPC connection is not there"),
        lambda: refuse(408, "EFSMountTimeoutException", "the mount timed out"),
        lambda: refuse(408, "EFSMountConnectivityException", "no connection to the file system"),
        lambda: refuse(503, "ServiceUnavailableException:http://internal/", "later"),
        lambda: refuse(409, "ResourceConflictException", "The function is being updated"),
    ],
)
def test_refused_calls_are_repeated_until_they_run(
    kind: RealFleet, endpoint: FakeLambda, refusal: Callable[[], web.Response]
) -> None:
    endpoint.behave = script(always(refusal), always(refusal), answer_well)
    assert ask(kind, endpoint).outcome is Outcome.OK
    assert len(endpoint.posts) == 3
    assert len({post.body for post in endpoint.posts}) == 1


@pytest.mark.parametrize(
    ("status", "name", "outcome"),
    [(429, "TooManyRequestsException", Outcome.THROTTLED), (503, "ServiceUnavailable", Outcome.UNREACHABLE)],
)
def test_patience_ends(kind: RealFleet, endpoint: FakeLambda, status: int, name: str, outcome: Outcome) -> None:
    endpoint.behave = always(lambda: refuse(status, name, "not now"))
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, arrival.error) == (outcome, f"{name}: not now")
    assert len(endpoint.posts) > 3


@pytest.mark.parametrize(
    "reason",
    [
        "ConcurrentInvocationLimitExceeded",
        "ReservedFunctionConcurrentInvocationLimitExceeded",
        "FunctionInvocationRateLimitExceeded",
        "CallerRateLimitExceeded",
    ],
)
def test_which_limit_throttled_is_told(kind: RealFleet, endpoint: FakeLambda, reason: str) -> None:
    endpoint.behave = always(lambda: refuse(429, "TooManyRequestsException", "Rate Exceeded.", Reason=reason))
    arrival = ask(kind, endpoint)
    assert arrival.outcome is Outcome.THROTTLED
    assert arrival.error == f"TooManyRequestsException ({reason}): Rate Exceeded."


def test_no_server_at_all(kind: RealFleet) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with opened(kind, url) as fleet:
            fleet.invoke([call(0, 0)])
            (arrival,) = take_all(fleet)
    assert arrival.outcome is Outcome.UNREACHABLE
    assert arrival.error.startswith(f"no connection to {url}")


# --- what may have run, or never will, is sent once --------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (404, "ResourceNotFoundException"),
        (403, "AccessDeniedException"),
        (403, "InvalidSignatureException"),
        (400, "InvalidParameterValueException"),
        (413, "RequestTooLargeException"),
        (307, "Redirected"),
    ],
)
def test_refused_for_good(kind: RealFleet, endpoint: FakeLambda, status: int, name: str) -> None:
    endpoint.behave = always(lambda: refuse(status, name, "Function not found: worker"))
    arrival = ask(kind, endpoint)
    assert (arrival.outcome, arrival.error) == (Outcome.UNREACHABLE, f"{name}: Function not found: worker")
    assert len(endpoint.posts) == 1


@pytest.mark.parametrize("name", LASTING)
def test_errors_of_the_service_that_last_are_refusals_with_advice(
    kind: RealFleet, endpoint: FakeLambda, name: str
) -> None:
    endpoint.behave = always(lambda: refuse(502, name, "Lambda could not do it"))
    arrival = ask(kind, endpoint)
    assert arrival.outcome is Outcome.UNREACHABLE
    assert arrival.error == f"{name}: Lambda could not do it -> {LASTING[name]}"
    assert "\n" not in arrival.error
    assert len(endpoint.posts) == 1


@pytest.mark.parametrize("beginning", [b"", b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"protocol"'])
def test_a_lost_answer_is_not_asked_for_again(kind: RealFleet, beginning: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with opened(kind, url) as fleet:
            fleet.invoke([call(0, 0)])
            connection, _ = listening.accept()
            connection.recv(65536)
            connection.sendall(beginning)
            connection.close()
            (arrival,) = take_all(fleet)
            listening.settimeout(0.2)
            with pytest.raises(TimeoutError):
                listening.accept()
    assert arrival.outcome is Outcome.UNREACHABLE
    assert "the connection broke" in arrival.error


def test_an_answer_that_never_comes_is_a_timeout_of_one_post(kind: RealFleet, endpoint: FakeLambda) -> None:
    """A client that asked again would run, and pay for, the function once more."""
    over = asyncio.Event()

    async def say_nothing(posted: Posted) -> web.StreamResponse:
        await over.wait()
        return await answer_well(posted)

    endpoint.behave = say_nothing
    with opened(kind, endpoint.url, function=Function("worker", timeout_s=0.1), silence_s=0.2) as fleet:
        fleet.invoke([call(0, 0)])
        (arrival,) = take_all(fleet)
        assert fleet.next(fleet.now() + 0.5) is None
    assert (arrival.outcome, len(endpoint.posts)) == (Outcome.TIMED_OUT, 1)
    assert "no answer within 0.3 s, longer than the function may take" in arrival.error
