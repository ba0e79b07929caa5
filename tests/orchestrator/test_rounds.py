"""The round machine by itself: events in, instructions out."""

from __future__ import annotations

import pytest

from gradmux.orchestrator.errors import DeadlinePassed, TaskFailed
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.policies import Backup, Earliest, Limits, Mu, WaitPolicy
from gradmux.orchestrator.ports import Arrival, Outcome
from gradmux.orchestrator.rounds import Close, Decode, Rounds, Send
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context


def machine(
    name: str = "gc", wait: WaitPolicy | None = None, limits: Limits | None = None, *, jobs: int = 2, s: int = 1
) -> Rounds:
    plan = JobPlan(1, jobs)
    params = parse_params(get(name), {"s": s, "code": "cyclic"} if name == "gc" else {})
    scheme = build_scheme(name, params, Context(workers=4, jobs=jobs))
    return Rounds(scheme, plan, wait or Earliest(), limits or Limits())


def send(rounds: Rounds, at_s: float) -> list[tuple[int, int, int]]:
    """Takes the next action, which must be a dispatch, and plays it."""
    action = rounds.next_action()
    assert isinstance(action, Send)
    rounds.sent(action.invocations, at_s)
    return [(call.round, call.worker, call.attempt) for call in action.invocations]


def answer(rounds: Rounds, t: int, worker: int, at_s: float, *, attempt: int = 1, ok: bool = True) -> bool:
    outcome = Outcome.OK if ok else Outcome.CRASHED
    slots = (0,) if ok else ()
    return rounds.arrived(Arrival(t, worker, attempt, at_s, outcome, slots, error="" if ok else "signal: killed"))


def test_a_round_is_sent_decoded_and_followed_by_the_next() -> None:
    rounds = machine()
    assert send(rounds, 0.0) == [(0, w, 1) for w in range(4)]
    for worker in (2, 0):
        answer(rounds, 0, worker, 1.0)
        assert rounds.next_action() is None
    answer(rounds, 0, 3, 2.0)
    assert rounds.next_action() == Close(0, 0.0, 2.0, late=(1,), waited=False, in_flight=1)
    assert rounds.next_action() == Decode(0)
    assert rounds.next_action() is None, "one model: job 1 has no weights yet"
    rounds.stepped(0)
    assert send(rounds, 2.5) == [(1, w, 1) for w in range(4)]
    assert not rounds.finished


def test_the_mu_rule_closes_at_the_cut_and_not_before() -> None:
    rounds = machine(wait=Mu(1.0, straggler_model="bursty"))
    send(rounds, 10.0)
    assert rounds.wake_at() is None, "nobody has answered yet"
    for worker, at_s in ((0, 11.0), (1, 11.1), (2, 11.2)):
        answer(rounds, 0, worker, at_s)
    assert rounds.next_action() == Decode(0), "decoded when it can be"
    rounds.stepped(0)
    assert rounds.next_action() is None, "but the paper's rule waits for the cut"
    assert rounds.wake_at() == 12.0
    rounds.tick(12.0)
    assert rounds.next_action() == Close(0, 10.0, 12.0, late=(3,), waited=False, in_flight=1)


@pytest.mark.parametrize(("wait_out", "closes_at"), [("until", 13.0), ("all", 14.0)])
def test_the_mu_rule_waits_out_a_pattern_outside_the_model(wait_out: str, closes_at: float) -> None:
    wait = Mu(1.0, "until" if wait_out == "until" else "all", "bursty")
    rounds = machine(wait=wait)
    send(rounds, 10.0)
    answer(rounds, 0, 0, 11.0)
    answer(rounds, 0, 1, 11.0)
    assert rounds.next_action() is None
    rounds.tick(12.0)
    assert rounds.next_action() is None, "two stragglers, but s = 1"
    assert rounds.wake_at() is None
    closes = []
    for worker, at_s in ((2, 13.0), (3, 14.0)):
        if rounds.knows(0):
            answer(rounds, 0, worker, at_s)
        while (action := rounds.next_action()) is not None:
            if isinstance(action, Close):
                closes.append(action)
            elif isinstance(action, Decode):
                rounds.stepped(action.job)
            else:
                rounds.sent(action.invocations, at_s)
    assert [(close.end_s, close.waited) for close in closes] == [(closes_at, True)]


def test_a_failed_worker_is_invoked_again_until_its_budget_is_spent() -> None:
    rounds = machine("uncoded", limits=Limits(attempts=2))
    send(rounds, 0.0)
    answer(rounds, 0, 2, 1.0, ok=False)
    assert send(rounds, 1.0) == [(0, 2, 2)]
    for worker in (0, 1, 3):
        answer(rounds, 0, worker, 1.5)
        assert rounds.next_action() is None
    answer(rounds, 0, 2, 2.0, attempt=2, ok=False)
    with pytest.raises(TaskFailed, match=r"round 0, worker 2 \(job 0\) failed in 2 attempts: signal: killed") as caught:
        rounds.next_action()
    assert caught.value.exit_code == 5


def test_a_backup_is_sent_once_for_each_missing_task_and_the_first_answer_counts() -> None:
    rounds = machine("uncoded", limits=Limits(backup=Backup(share=0.5, slack=None)))
    send(rounds, 0.0)
    answer(rounds, 0, 0, 1.0)
    answer(rounds, 0, 1, 1.0)
    assert send(rounds, 1.0) == [(0, 2, 2), (0, 3, 2)]
    assert answer(rounds, 0, 2, 1.5, attempt=2)
    assert not answer(rounds, 0, 2, 1.6), "the first attempt's answer is of no more use"
    assert answer(rounds, 0, 3, 1.7)
    assert rounds.next_action() == Close(0, 0.0, 1.7, late=(), waited=False, in_flight=1)


def test_a_backup_by_time_waits_for_its_instant() -> None:
    rounds = machine("uncoded", limits=Limits(backup=Backup(share=None, slack=0.5)))
    send(rounds, 2.0)
    answer(rounds, 0, 0, 4.0)
    assert rounds.wake_at() == 5.0
    rounds.tick(5.0)
    assert send(rounds, 5.0) == [(0, 1, 2), (0, 2, 2), (0, 3, 2)]


def test_capacity_holds_a_whole_round_back_until_it_fits() -> None:
    rounds = machine(limits=Limits(concurrency=5))
    send(rounds, 0.0)
    for worker in (0, 1):
        answer(rounds, 0, worker, 1.0)
    assert rounds.next_action() is None
    answer(rounds, 0, 2, 1.0)
    assert isinstance(rounds.next_action(), Close)
    assert rounds.next_action() == Decode(0)
    rounds.stepped(0)
    assert len(send(rounds, 1.0)) == 4, "one straggler and four workers are five"
    for worker in (0, 1, 2):
        answer(rounds, 1, worker, 2.0)
    while not rounds.finished:
        action = rounds.next_action()
        if isinstance(action, Decode):
            rounds.stepped(action.job)
    assert rounds.in_flight == 2


def test_after_two_deadlines_without_an_answer_there_is_nothing_to_estimate_from() -> None:
    rounds = machine("uncoded", limits=Limits(deadline_s=1.0, attempts=1, approximate=True))
    send(rounds, 0.0)
    rounds.tick(1.0)
    with pytest.raises(DeadlinePassed, match=r"could not decode job 0 within 2 s .* cannot be estimated either"):
        rounds.tick(2.0)


def test_one_answer_is_enough_for_an_estimate() -> None:
    rounds = machine("uncoded", limits=Limits(deadline_s=1.0, attempts=1, approximate=True))
    send(rounds, 0.0)
    answer(rounds, 0, 3, 0.5)
    rounds.tick(1.0)
    rounds.tick(2.0)
    assert rounds.next_action() == Close(0, 0.0, 2.0, late=(0, 1, 2), waited=False, in_flight=3)
    assert rounds.next_action() == Decode(0, estimate=True)


def test_a_deadline_closes_a_round_that_only_the_in_flight_cap_held() -> None:
    rounds = machine(limits=Limits(deadline_s=1.0, attempts=1, in_flight_cap=0.1))
    send(rounds, 0.0)
    for worker in (0, 1, 2):
        answer(rounds, 0, worker, 0.5)
    assert rounds.next_action() == Decode(0)
    rounds.stepped(0)
    assert rounds.next_action() is None, "the fourth is still in flight"
    rounds.tick(1.0)
    assert rounds.next_action() is None
    rounds.tick(2.0)
    assert rounds.next_action() == Close(0, 0.0, 2.0, late=(3,), waited=False, in_flight=1)
