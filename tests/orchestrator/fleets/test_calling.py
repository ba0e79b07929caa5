"""Waits before repeated calls, growth at AWS's rate, and requests that AWS would not take; no clock is read."""

from __future__ import annotations

import random

import pytest

from gradmux.lambda_worker.contract import Order, ReplyMode, Request, Task, Term, Weights, encode_request
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.calling import Backoff, Patience, Pause, Ramp, request_body
from gradmux.orchestrator.fleets.refusals import Verdict

PATIENCE = Patience(throttled_s=10.0, unavailable_s=4.0, first_wait_s=0.5, longest_wait_s=2.0)


def test_waits_are_random_and_double_up_to_a_limit() -> None:
    for repeats, longest in enumerate((0.5, 1.0, 2.0, 2.0)):
        waits = [
            Backoff(PATIENCE, 0.0, random.Random(seed), repeats).wait_s(Verdict.THROTTLED, 1.0) for seed in range(200)
        ]
        known = [wait for wait in waits if wait is not None]
        assert len(known) == 200
        assert 0.0 <= min(known) < 0.1 * longest
        assert 0.9 * longest < max(known) <= longest


@pytest.mark.parametrize(
    ("verdict", "limit_s"),
    [(Verdict.THROTTLED, 10.0), (Verdict.UNAVAILABLE, 4.0), (Verdict.EXPIRED, 4.0)],
)
def test_patience_ends(verdict: Verdict, limit_s: float) -> None:
    backoff = Backoff(PATIENCE, 100.0)
    assert backoff.wait_s(verdict, 100.0 + limit_s - 0.01) is not None
    assert backoff.wait_s(verdict, 100.0 + limit_s) is None


@pytest.mark.parametrize("verdict", [Verdict.ANSWERED, Verdict.LOST, Verdict.SILENT, Verdict.REFUSED])
def test_what_may_have_run_or_never_will_is_not_repeated(verdict: Verdict) -> None:
    assert Backoff(PATIENCE, 0.0).wait_s(verdict, 0.0) is None


def test_what_the_server_asks_for_is_waited_for() -> None:
    backoff = Backoff(PATIENCE, 0.0, random.Random(1))
    pause = backoff.pause(Verdict.THROTTLED, 1.0, asked_s=5.0)
    assert pause.again
    assert 5.0 <= pause.wait_s <= 5.5
    assert backoff.pause(Verdict.LOST, 1.0, asked_s=5.0) == Pause(0.0, again=False)


def test_longer_than_patience_is_waited_out_without_another_question() -> None:
    backoff = Backoff(PATIENCE, 0.0, random.Random(1))
    assert backoff.pause(Verdict.THROTTLED, 6.0, asked_s=5.0) == Pause(4.0, again=False)
    assert backoff.pause(Verdict.UNAVAILABLE, 4.0, asked_s=0.0) == Pause(0.0, again=False)


def test_a_function_grows_by_a_thousand_at_once_and_then_by_a_hundred_a_second() -> None:
    ramp, at_s = Ramp(), 0.0
    reached: dict[int, float] = {}
    while len(reached) < 1500:
        wait_s = ramp.wait_s(len(reached) + 1, at_s)
        at_s += wait_s
        if wait_s == 0.0:
            reached[len(reached) + 1] = at_s
    assert reached[1000] == 0.0
    assert reached[1500] == pytest.approx(5.0)


def test_calls_below_the_highest_so_far_wait_for_nothing() -> None:
    ramp = Ramp(burst=2, per_s=1.0)
    assert [ramp.wait_s(height, 0.0) for height in (1, 2)] == [0.0, 0.0]
    assert [ramp.wait_s(height, 0.0) for height in (2, 1, 2, 2)] == [0.0] * 4
    assert ramp.wait_s(3, 0.0) == 1.0
    assert ramp.wait_s(3, 0.25) == 0.75
    assert ramp.wait_s(3, 1.0) == 0.0


def of_size(size: int, *, post: bool) -> Request:
    """A request whose JSON has exactly so many bytes."""
    mode = ReplyMode(post=post, prefix="p/")
    bare = len(encode_request(Request("gradient", "", 0, 3, 4, "bucket", reply=mode)))
    return Request("gradient", "r" * (size - bare), 0, 3, 4, "bucket", reply=mode)


@pytest.mark.parametrize(("post", "limit"), [(False, 6_291_456), (True, 1_048_576)], ids=["request", "event"])
def test_the_last_byte_decides_whether_a_request_is_sent(post: bool, limit: int) -> None:
    for size in (limit - 1, limit):
        assert len(request_body(of_size(size, post=post))) == size
    with pytest.raises(ConfigError, match=f"its request has {limit + 1} bytes, AWS takes {limit}"):
        request_body(of_size(limit + 1, post=post))


def test_a_request_that_aws_would_refuse_is_told_before_it_is_sent() -> None:
    weights = Weights.of(bytes(5_000_000))
    task = Task(0, 0, "spec", weights, Order(1, 1), 0, 1, (Term(0, 1),))
    with pytest.raises(ConfigError, match=r"round 3, worker 4: its request has 66\d+ bytes, AWS takes 6291456"):
        request_body(
            Request("gradient", "run", 0, 3, 4, "bucket", data="d", reply=ReplyMode(prefix="p/"), tasks=(task,))
        )
