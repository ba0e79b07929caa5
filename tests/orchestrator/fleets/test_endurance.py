"""Thousands of invocations leave nothing behind: descriptors, connections, threads and memory stay as they were."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.light_lambda import RUN, Requests, invocations, light_lambda
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.store import MemoryStore

pytestmark = pytest.mark.usefixtures("aws_environment")

WORKERS, ROUNDS, SETTLED = 100, 50, 15
ALLOWED_MB = 3.0
"""of growth over 3,500 invocations, each of which comes with 3 KB of requests, replies and arrivals"""


@pytest.fixture
def fleet() -> Iterator[LambdaFleet]:
    gc.collect()
    gc.freeze()  # what was there before is not looked through round after round
    with light_lambda() as url:
        made = LambdaFleet(Function("worker"), Requests(), MemoryStore(), run=RUN, endpoint_url=url)
        yield made
        made.close()


def test_five_thousand_invocations(fleet: LambdaFleet) -> None:
    this, held = psutil.Process(), list[tuple[int, int, int]]()
    for round in range(ROUNDS):
        fleet.invoke(invocations(WORKERS, round))
        assert sum(bool(arrival.slots) for arrival in iter(lambda: fleet.next(None), None)) == WORKERS
        gc.collect()
        held.append((this.num_fds(), threading.active_count(), this.memory_info().rss))
    descriptors, threads, memory = zip(*held[SETTLED:], strict=True)
    assert max(descriptors) == min(descriptors)
    assert max(descriptors) <= WORKERS + 60, "a connection for each worker, no more"
    assert max(threads) == min(threads)
    assert (memory[-1] - memory[0]) / 2**20 < ALLOWED_MB
