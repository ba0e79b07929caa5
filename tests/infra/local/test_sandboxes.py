"""Sandboxes: reused warm, kept for their logical worker, with a /tmp of their own, and nothing leaks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig
from tests.infra.local.conftest import SAMPLES, client_of
from tests.infra.local.door import signed

WORKERS = 4
CONFIG = EmulatorConfig(handler=SAMPLES, preload=(), warm=2, concurrency=8)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(CONFIG) as running:
        yield running


@pytest.fixture
def call(emulator: Emulator) -> Callable[..., Any]:
    client = client_of(emulator, "lambda")

    def invoke(worker: int | None, do: str, **fields: Any) -> Any:
        place = {} if worker is None else {"round": 0, "worker": worker}
        response = client.invoke(FunctionName=CONFIG.function, Payload=json.dumps({"do": do, **place, **fields}))
        assert "FunctionError" not in response
        return json.loads(response["Payload"].read())

    return invoke


def test_warm_sandboxes_are_there_from_the_start_and_are_no_cold_starts(emulator: Emulator) -> None:
    with Emulator(CONFIG) as fresh:
        assert len(fresh.admin.sandboxes()) == 2
        client_of(fresh, "lambda").invoke(FunctionName=CONFIG.function)
        assert fresh.statistics()["cold_starts"] == 0
        fresh.admin.warm(3)
        assert len(fresh.admin.sandboxes()) == 3


def test_a_busy_sandbox_is_not_reused(emulator: Emulator, call: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(WORKERS) as callers:
        for _ in range(2):
            done = callers.map(lambda worker: call(worker, "sleep", seconds=0.1), range(WORKERS))
            assert list(done) == ["slept"] * WORKERS
    assert len(emulator.admin.sandboxes()) == WORKERS
    assert emulator.statistics()["cold_starts"] == WORKERS - CONFIG.warm


def test_a_delayed_sandbox_is_busy_until_its_answer(emulator: Emulator, call: Callable[..., Any]) -> None:
    emulator.set_delays(DelayPlan.of([[0.3, 0.0]]))
    with ThreadPoolExecutor(2) as callers:
        slow = callers.submit(call, 0, "describe")
        time.sleep(0.1)
        fast = callers.submit(call, 1, "describe")
        assert slow.result()["pid"] != fast.result()["pid"]
    emulator.set_delays(DelayPlan())


def test_a_logical_worker_comes_back_to_its_sandbox(call: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(WORKERS) as callers:
        list(callers.map(lambda worker: call(worker, "sleep", seconds=0.05), range(WORKERS)))
        first = {worker: call(worker, "describe")["pid"] for worker in range(WORKERS)}
        assert len(set(first.values())) == WORKERS
        for order in ([3, 1, 0, 2], [0, 1, 2, 3], [2, 0, 3, 1]):
            assert {worker: call(worker, "describe")["pid"] for worker in order} == first


def test_a_stranger_does_not_take_a_worker_s_sandbox_when_another_is_free(
    emulator: Emulator, call: Callable[..., Any]
) -> None:
    emulator.admin.warm(len(emulator.admin.sandboxes()) + 1)
    homes = {each["pid"] for each in emulator.admin.sandboxes() if each["worker"] is not None}
    assert call(None, "describe")["pid"] not in homes


def test_tmp_is_the_sandbox_s_own_and_survives_warm_reuse(call: Callable[..., Any]) -> None:
    first, again, other = call(0, "count_in_tmp"), call(0, "count_in_tmp"), call(1, "count_in_tmp")
    assert again["pid"] == first["pid"]
    assert again["directory"] == first["directory"]
    assert again["calls"] == first["calls"] + 1
    assert other["directory"] != first["directory"]
    assert call(0, "describe")["environment"]["LAMBDA_TASK_TMP"] == first["directory"]


def test_tmp_goes_with_its_sandbox(emulator: Emulator, call: Callable[..., Any]) -> None:
    seen = call(0, "count_in_tmp")
    assert Path(seen["directory"]).is_dir()
    os.kill(seen["pid"], 9)
    deadline = time.monotonic() + 10
    while Path(seen["directory"]).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(seen["directory"]).exists()
    assert call(0, "count_in_tmp")["pid"] != seen["pid"]


def test_workers_do_not_draw_the_same_random_numbers(call: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(WORKERS) as callers:
        drawn = list(callers.map(lambda worker: call(worker, "draw", seconds=0.1), range(WORKERS)))
    assert len(set(drawn)) == WORKERS


def test_descriptors_stay_flat_over_a_thousand_calls(emulator: Emulator) -> None:
    pids = [emulator.started.processes["server"][0], *(each["pid"] for each in emulator.admin.sandboxes())]
    connection = HTTPConnection("127.0.0.1", emulator.started.lambda_port)
    path, body = f"/2015-03-31/functions/{CONFIG.function}/invocations", b'{"round": 0, "worker": 0}'
    headers = signed(emulator.secret, "POST", emulator.lambda_endpoint + path, body)

    def descriptors() -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)

    def calls(count: int) -> None:
        for _ in range(count):
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            assert response.status == 200
            response.read()

    calls(10)
    before = descriptors()
    calls(1000)
    assert descriptors() == before
    connection.close()
