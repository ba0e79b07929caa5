"""The inbox between a fleet's threads and the loop."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets.inbox import Inbox
from gradmux.orchestrator.ports import Arrival, Outcome


def arrival(worker: int, *, final: bool = True) -> Arrival:
    return Arrival(round=0, worker=worker, attempt=1, at_s=-1.0, outcome=Outcome.OK, final=final)


def test_arrivals_of_many_threads_come_in_the_order_of_their_stamps() -> None:
    inbox = Inbox()
    inbox.expect(200)

    def put_fifty(first: int) -> None:
        for worker in range(first, first + 50):
            inbox.put(arrival(worker))

    threads = [threading.Thread(target=put_fifty, args=(first,)) for first in range(0, 200, 50)]
    for thread in threads:
        thread.start()
    taken = [inbox.take(None) for _ in range(200)]
    stamps = [a.at_s for a in taken if a is not None]
    assert len(stamps) == 200
    assert stamps == sorted(stamps)
    assert {a.worker for a in taken if a is not None} == set(range(200))
    assert inbox.take(None) is None


def test_who_comes_together_comes_one_after_the_other() -> None:
    """Else a record's delays would not tell whose answer was the one too many."""
    inbox = Inbox()
    inbox.expect(1000)
    for first in range(0, 1000, 500):
        inbox.put(*(arrival(worker) for worker in range(first, first + 500)))
    taken = [inbox.take(None) for _ in range(1000)]
    assert [a.worker for a in taken if a is not None] == list(range(1000))
    stamps = [a.at_s for a in taken if a is not None]
    assert all(earlier < later for earlier, later in pairwise(stamps))


def test_early_messages_leave_their_invocation_in_flight() -> None:
    inbox = Inbox()
    inbox.expect(1)
    inbox.put(arrival(0, final=False))
    threading.Timer(0.01, lambda: inbox.put(arrival(0))).start()
    taken = [inbox.take(None) for _ in range(3)]
    assert [None if a is None else a.final for a in taken] == [False, True, None]


def test_what_came_before_trouble_is_not_taken_any_more() -> None:
    inbox = Inbox()
    inbox.expect(2)
    inbox.put(arrival(0))
    inbox.fail(PreflightError("gone"))
    with pytest.raises(PreflightError, match="gone"):
        inbox.take(None)


def test_what_came_after_until_stays() -> None:
    inbox = Inbox()
    inbox.expect(1)
    until = inbox.now()
    time.sleep(0.002)
    inbox.put(arrival(0))
    assert inbox.take(until) is None
    assert inbox.take(None) is not None


def test_trouble_wakes_who_waits_and_is_raised() -> None:
    inbox = Inbox()
    inbox.expect(1)
    threading.Timer(0.01, lambda: inbox.fail(PreflightError("gone"))).start()
    with pytest.raises(PreflightError, match="gone"):
        inbox.take(None)
    inbox.fail(PreflightError("later"))
    with pytest.raises(PreflightError, match="gone"):
        inbox.take(inbox.now() + 10)


def test_nothing_is_taken_from_an_abandoned_inbox() -> None:
    inbox = Inbox()
    inbox.expect(2)
    inbox.put(arrival(0))
    inbox.abandon()
    inbox.put(arrival(1))
    assert inbox.take(None) is None
    assert inbox.take(inbox.now() + 60) is None
