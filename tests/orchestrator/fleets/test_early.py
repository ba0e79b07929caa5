"""Early messages: delivered as they come, once, and never lost, whatever becomes of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import orjson
import pytest
from aiohttp import web
from msgspec import structs

from gradmux.lambda_worker.contract import Reply, Request, Result, early_key, encode_result, reply_json
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import MemoryStore, StoreUnavailable
from tests.orchestrator.fleet_contract import take_all
from tests.orchestrator.fleets.fake_lambda import (
    GRADIENT,
    SUMS,
    FakeLambda,
    PlainRequests,
    Posted,
    answer_well,
    fail,
    good_reply,
    respond,
)

pytestmark = pytest.mark.usefixtures("aws_environment")

BUFFER = encode_result(GRADIENT, SUMS)


class EarlyRequests(PlainRequests):
    """Every slot is a message of its own."""

    def build(self, call: Invocation) -> Request:
        request = super().build(call)
        tasks = tuple(structs.replace(task, message=task.slot) for task in request.tasks)
        return structs.replace(request, tasks=tasks, reply=structs.replace(request.reply, early=True))


def message_reply(request: Request, message: int) -> Reply:
    """The reply with the results of one message alone."""
    result = Result(message, 0, "ok", message=message, buffer=BUFFER, size=len(BUFFER))
    return structs.replace(good_reply(request), results=(result,))


def put_early(store: MemoryStore, request: Request, message: int) -> None:
    store.put(early_key(request, message), orjson.dumps(reply_json(message_reply(request, message))))


def three_messages() -> Invocation:
    slots = tuple(Task(0, (slot,), (1.0,), message=slot) for slot in range(3))
    return Invocation(round=2, worker=5, attempt=1, slots=slots, load=1.0, epoch=3, early=(0.3, 0.6))


@contextmanager
def opened(endpoint: FakeLambda, store: MemoryStore) -> Iterator[LambdaFleet]:
    fleet = LambdaFleet(Function("worker"), EarlyRequests(), store, run="run", endpoint_url=endpoint.url)
    try:
        yield fleet
    finally:
        fleet.close()


def play(endpoint: FakeLambda, store: MemoryStore) -> list[Arrival]:
    with opened(endpoint, store) as fleet:
        fleet.invoke([three_messages()])
        return take_all(fleet)


@pytest.fixture
def endpoint() -> Iterator[FakeLambda]:
    with FakeLambda() as running:
        yield running


def test_each_message_comes_when_it_is_there(endpoint: FakeLambda) -> None:
    store = MemoryStore()

    async def slow(posted: Posted) -> web.StreamResponse:
        for message in (0, 1):
            await asyncio.sleep(0.15)
            put_early(store, posted.request, message)
        await asyncio.sleep(0.15)
        return respond(message_reply(posted.request, 2))

    endpoint.behave = slow
    arrivals = play(endpoint, store)
    assert [(a.slots, a.final) for a in arrivals] == [((0,), False), ((1,), False), ((2,), True)]
    gaps = np.diff([a.at_s for a in arrivals])
    assert (gaps > 0.05).all()
    np.testing.assert_array_equal(arrivals[0].results[0].gradient, GRADIENT)


def test_messages_that_nobody_saw_come_before_the_last_answer(endpoint: FakeLambda) -> None:
    store = MemoryStore()

    async def fast(posted: Posted) -> web.StreamResponse:
        for message in (0, 1):
            put_early(store, posted.request, message)
        return respond(message_reply(posted.request, 2))

    endpoint.behave = fast
    arrivals = play(endpoint, store)
    assert [(a.slots, a.final) for a in arrivals] == [((0,), False), ((1,), False), ((2,), True)]


def test_messages_count_even_when_the_worker_dies_after_them(endpoint: FakeLambda) -> None:
    store = MemoryStore()

    async def dies(posted: Posted) -> web.StreamResponse:
        put_early(store, posted.request, 0)
        return fail("Runtime.ExitError", "RequestId: 1 Error: Runtime exited with error: exit status 1")

    endpoint.behave = dies
    arrivals = play(endpoint, store)
    assert [(a.slots, a.final, a.outcome) for a in arrivals] == [
        ((0,), False, Outcome.OK),
        ((), True, Outcome.CRASHED),
    ]


def test_a_worker_that_cannot_put_its_messages_answers_them_all(endpoint: FakeLambda) -> None:
    endpoint.behave = answer_well
    (arrival,) = play(endpoint, MemoryStore())
    assert (arrival.slots, arrival.final) == ((0, 1, 2), True)


def test_a_damaged_message_is_no_answer(endpoint: FakeLambda) -> None:
    store = MemoryStore()

    async def damaged(posted: Posted) -> web.StreamResponse:
        store.put(early_key(posted.request, 0), b"{")
        other = structs.replace(good_reply(posted.request), round=7)
        store.put(early_key(posted.request, 1), orjson.dumps(reply_json(other)))
        return respond(message_reply(posted.request, 2))

    endpoint.behave = damaged
    (arrival,) = play(endpoint, store)
    assert (arrival.slots, arrival.final) == ((2,), True)


class BrokenStore(MemoryStore):
    def get(self, key: str) -> bytes:
        raise StoreUnavailable("bucket b does not answer")


def test_a_store_that_is_gone_ends_the_run_resumably(endpoint: FakeLambda) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        play(endpoint, BrokenStore())
