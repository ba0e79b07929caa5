"""Asks a real fleet at a scripted endpoint for one invocation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from benchmarks.boto3_fleet import Boto3Fleet
from gradmux.orchestrator.fleets.calling import Function, Patience
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.ports import Arrival
from gradmux.orchestrator.store import MemoryStore
from tests.orchestrator.fleet_contract import call, take_all
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda, PlainRequests, Posted


@contextmanager
def opened(kind: RealFleet, url: str, store: Any = None, **options: Any) -> Iterator[LambdaFleet | Boto3Fleet]:
    settings: dict[str, Any] = {
        "patience": Patience(throttled_s=0.3, unavailable_s=0.3, first_wait_s=0.01, longest_wait_s=0.05),
        **options,
    }
    function = settings.pop("function", Function("worker"))
    fleet = kind(function, PlainRequests(), store or MemoryStore(), run="run", endpoint_url=url, **settings)
    try:
        yield fleet
    finally:
        fleet.close()


def ask(kind: RealFleet, endpoint: FakeLambda, *, slots: int = 1, store: Any = None, **options: Any) -> Arrival:
    """One invocation's arrival."""
    with opened(kind, endpoint.url, store, **options) as fleet:
        fleet.invoke([call(2, 5, slots=slots)])
        (arrival,) = take_all(fleet)
    assert (arrival.round, arrival.worker, arrival.attempt, arrival.epoch) == (2, 5, 1, 3)
    return arrival


Answering = Callable[[Posted], Awaitable[web.StreamResponse]]


def script(*answers: Answering) -> Answering:
    """The n-th POST gets the n-th answer, later ones the last."""

    async def behave(posted: Posted) -> web.StreamResponse:
        return await answers[min(posted.number, len(answers) - 1)](posted)

    return behave


def always(make: Callable[[], web.Response]) -> Answering:
    """Every POST gets a response made anew: one can be sent but once."""

    async def behave(posted: Posted) -> web.StreamResponse:
        return make()

    return behave
