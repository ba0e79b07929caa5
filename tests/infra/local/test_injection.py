"""The delay decision, by itself."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.infra.local import DelayPlan, EmulatorError

MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(("round", "worker", "expected"), [(0, 0, 1.0), (1, 2, 6.0), (2, 1, 2.0), (3, 4, 5.0)])
def test_rows_are_rounds_and_columns_are_workers_and_both_wrap(round: int, worker: int, expected: float) -> None:
    assert DelayPlan.of(MATRIX).delay_s(round, worker, 1, 0.0) == expected


def test_load_adds_its_slope_beyond_the_load_of_the_matrix() -> None:
    plan = DelayPlan.of(MATRIX, slope_s=10.0, base_load=0.25)
    assert plan.delay_s(0, 0, 1, 0.75) == pytest.approx(6.0)
    assert plan.delay_s(0, 0, 1, 0.25) == pytest.approx(1.0)


def test_a_delay_is_never_negative() -> None:
    assert DelayPlan.of([[0.1]], slope_s=10.0, base_load=0.5).delay_s(0, 0, 1, 0.0) == 0.0


def test_time_scale_shortens_all_of_it() -> None:
    plan = DelayPlan.of(MATRIX, slope_s=10.0, time_scale=0.01)
    assert plan.delay_s(1, 0, 1, 0.5) == pytest.approx(0.09)


def test_an_empty_plan_injects_nothing() -> None:
    assert DelayPlan(slope_s=100.0).delay_s(0, 0, 1, 1.0) == 0.0


@given(round=st.integers(0, 10), worker=st.integers(0, 63), attempt=st.integers(2, 5), seed=st.integers(0, 3))
def test_a_repeated_attempt_gets_the_delay_of_another_worker(round: int, worker: int, attempt: int, seed: int) -> None:
    plan = DelayPlan.of(np.arange(64.0)[None, :], seed=seed)
    repeated = plan.delay_s(round, worker, attempt, 0.0)
    assert repeated != plan.delay_s(round, worker, 1, 0.0)
    assert repeated == plan.delay_s(round, worker, attempt, 0.0)


def test_repeated_attempts_reach_every_other_worker() -> None:
    plan = DelayPlan.of([[0.0, 1.0, 2.0, 3.0]])
    assert {plan.delay_s(round, 0, 2, 0.0) for round in range(50)} == {1.0, 2.0, 3.0}


@pytest.mark.parametrize("matrix", [[[1.0], [1.0, 2.0]], [[]], [[-1.0]], [[float("nan")]]])
def test_what_is_no_matrix_of_delays_is_refused(matrix: list[list[float]]) -> None:
    with pytest.raises(EmulatorError, match="delays_s"):
        DelayPlan.of(matrix)


@pytest.mark.parametrize("time_scale", [0.0, -1.0, float("nan")])
def test_time_must_pass(time_scale: float) -> None:
    with pytest.raises(EmulatorError, match="time_scale"):
        DelayPlan.of(MATRIX, time_scale=time_scale)


def test_a_missing_delay_is_a_call_that_fails_when_it_is_said_or_at_the_timeout() -> None:
    inf = math.inf
    plan = DelayPlan.of([[1.0, inf, inf]], found_s=[[inf, 0.5, inf]], time_scale=0.1)
    assert [plan.fails_s(0, worker, 1, timeout_s=3.0) for worker in range(3)] == [None, 0.05, pytest.approx(0.3)]
    assert DelayPlan.of([[inf]]).fails_s(0, 0, 1, timeout_s=3.0) == 3.0
    assert DelayPlan.from_json(json.loads(json.dumps(dataclasses.asdict(plan)))) == plan
    with pytest.raises(EmulatorError, match="shape of delays_s"):
        DelayPlan.of([[1.0, inf]], found_s=[[1.0]])


def test_a_plan_survives_json() -> None:
    plan = DelayPlan.of(MATRIX, slope_s=1.5, base_load=0.25, time_scale=0.1, seed=7)
    assert DelayPlan.from_json(json.loads(json.dumps(dataclasses.asdict(plan)))) == plan


def test_delays_in_proportion_to_the_load() -> None:
    plan = DelayPlan.of([[8.0]], slope_s=1.0, base_load=0.5, time_scale=0.1, scales=True)
    assert plan.delay_s(0, 0, 1, 0.5) == pytest.approx(0.8)
    assert plan.delay_s(0, 0, 1, 0.25) == pytest.approx(0.4), "the first of two messages comes at half the time"
    assert DelayPlan.from_json(json.loads(json.dumps(dataclasses.asdict(plan)))) == plan
    with pytest.raises(EmulatorError, match="need base_load"):
        DelayPlan.of([[1.0]], scales=True)
