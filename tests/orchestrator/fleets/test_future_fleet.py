"""A fleet over futures: what a future comes to is the outcome of its call, told once."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import orjson
import pytest

from gradmux.lambda_worker.contract import parse_request, reply_json
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.fleets.future_fleet import FutureFleet
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.store import MemoryStore
from tests.orchestrator.fleet_contract import call
from tests.orchestrator.fleets.fake_lambda import PlainRequests, good_reply


class Submitted:
    """Keeps what was submitted; the test ends each future."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.futures: list[Future[bytes]] = []

    def __call__(self, body: bytes) -> Future[bytes]:
        self.bodies.append(body)
        self.futures.append(Future())
        return self.futures[-1]

    def answer(self, number: int) -> None:
        """As a worker does."""
        reply = good_reply(parse_request(self.bodies[number]))
        self.futures[number].set_result(orjson.dumps(reply_json(reply)))


def fleet(submit: Submitted, **options: Any) -> FutureFleet:
    settings = {"timeout_s": 60.0, **options}
    return FutureFleet(submit, PlainRequests(), MemoryStore(), run="run", **settings)


def test_answers_come_in_the_order_in_which_the_futures_end() -> None:
    submit = Submitted()
    made = fleet(submit)
    start_s = made.invoke([call(0, worker) for worker in range(3)])
    assert made.next(start_s) is None
    for number in (2, 0, 1):
        submit.answer(number)
    arrivals = [made.next(None) for _ in range(3)]
    assert [each.worker for each in arrivals if each is not None] == [2, 0, 1]
    assert made.next(None) is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BrokenProcessPool("a process died"), Outcome.CRASHED),
        (ConnectionResetError("gone"), Outcome.CRASHED),
        (MemoryError("no more"), Outcome.OUT_OF_MEMORY),
        (TimeoutError("too long"), Outcome.TIMED_OUT),
        (ValueError("odd"), Outcome.FAILED),
    ],
)
def test_what_a_future_raises_is_an_outcome(error: Exception, outcome: Outcome) -> None:
    submit = Submitted()
    made = fleet(submit)
    made.invoke([call(0, 0)])
    submit.futures[0].set_exception(error)
    arrival = made.next(None)
    assert arrival is not None
    assert (arrival.outcome, arrival.final) == (outcome, True)
    assert str(error) in arrival.error


def test_a_call_that_does_not_end_is_given_up_and_its_late_answer_is_nobodys() -> None:
    submit = Submitted()
    made = fleet(submit, timeout_s=0.01, silence_s=0.01)
    made.invoke([call(0, 0), call(0, 1)])
    submit.futures[0].set_running_or_notify_cancel()
    submit.answer(1)
    first, second = made.next(None), made.next(None)
    assert first is not None
    assert second is not None
    assert [(first.worker, first.outcome), (second.worker, second.outcome)] == [
        (1, Outcome.OK),
        (0, Outcome.TIMED_OUT),
    ]
    submit.answer(0)
    assert made.next(None) is None


def test_a_request_that_workers_do_not_take_is_refused_before_it_is_sent() -> None:
    submit = Submitted()
    with pytest.raises(ConfigError, match=r"round 0, worker 0: its request has \d+ bytes, workers here take 10"):
        fleet(submit, request_bytes=10).invoke([call(0, 0)])
    assert submit.bodies == []


def test_a_check_says_why_nothing_can_be_submitted() -> None:
    def check() -> None:
        raise PreflightError("no cluster")

    with pytest.raises(PreflightError, match="no cluster"):
        fleet(Submitted(), check=check).check()


def test_once_closed_it_tells_nothing() -> None:
    submit = Submitted()
    made = fleet(submit)
    made.invoke([call(0, 0), call(0, 1)])
    submit.futures[1].set_running_or_notify_cancel()
    made.close()
    submit.answer(1)
    assert submit.futures[0].cancelled()
    assert made.next(0.0) is None
