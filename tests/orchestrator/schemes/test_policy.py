"""The policy is pinned: on a few fixed delays, what pipeline-auto chooses, how long that takes and what it costs.

These are not truths but decisions. A change of policy changes them, and has to show in
`benchmarks/worth.py` that it is a better one.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest

from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.schemes.delay_estimate import Delays, slope_of
from gradmux.orchestrator.schemes.scheme import Expected, FloatArray
from gradmux.orchestrator.schemes.sizing import Bounds, best_size, latency_s, lengths, step_cost
from gradmux.orchestrator.schemes.worth import Worth
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate

HELD_USD = 2 * 0.0000166667
CALL_USD = 0.2e-6
QUANTILES = (np.arange(200) + 0.5) / 200
CALLS_S: FloatArray = 1.0 - 0.3 * np.log(1.0 - QUANTILES)
"""quantiles of 1 s and an exponential of 0.3 s"""
STEPS = 50
EXPECTED = tuple(CALLS_S[::4].tolist())


def delays(slope_s: float) -> Delays:
    return Delays(CALLS_S, 1.0 - (np.arange(200) + 1.0) / 200, slope_s)


def bounds(hour_usd: float, models: int = 4) -> Bounds:
    share = 256 // models
    groups = 1 << (share.bit_length() - 1)
    return Bounds(models, 256, 1.0, 2 * share, groups, Worth(hour_usd=hour_usd), most_copies=min(6, 2 * share))


SIZES = {  # (slope, V): n, G, K of 50 steps of 4 models
    (0.05, 0.0): (1, 1, 50),
    (0.05, 10.0): (2, 1, 50),
    (0.05, math.inf): (6, 1, 50),
    (1.0, 0.0): (1, 1, 50),
    (1.0, 10.0): (1, 1, 50),
    (1.0, math.inf): (6, 1, 50),
    (8.0, 0.0): (1, 1, 50),
    (8.0, 10.0): (8, 8, 1),
    (8.0, math.inf): (50, 16, 1),
    (64.0, 0.0): (1, 1, 50),
    (64.0, 10.0): (32, 32, 1),
    (64.0, math.inf): (80, 64, 1),
}


@pytest.mark.parametrize(("slope_s", "hour_usd"), SIZES)
def test_sizes(slope_s: float, hour_usd: float) -> None:
    found = best_size(delays(slope_s), bounds(hour_usd), STEPS, STEPS)
    assert (found.workers, found.groups, found.steps) == SIZES[slope_s, hour_usd]


def test_computing_makes_a_job_longer_by_its_load() -> None:
    """By hand: constant delays of 1 s, 8 s a batch; 4 groups take 1 + 2 s, 5 whole batches 1 + 40 s."""
    one = Delays(np.array([1.0, 1.0]), np.array([0.5, 0.0]), 8.0)
    sizes = np.array([4.0, 1.0]), np.array([4.0, 1.0]), np.array([1.0, 5.0])
    np.testing.assert_allclose(latency_s(one, *sizes), [3.0, 41.0])


def test_what_a_step_costs_by_hand() -> None:
    """1 s a call and 8 s a batch, 2 models, C = 100: 4 workers in 4 groups, 50 steps, $36 an hour, a cent a second.

    A step is 3 s long; 2 models x 4 workers x 3 s are 24 cents, waiting is 3 cents.
    """
    one = Delays(np.array([1.0, 1.0]), np.array([0.5, 0.0]), 8.0)
    worth = Worth(hour_usd=36.0, held_usd=0.01, call_usd=0.0, state_usd=0.0)
    four = np.array([4.0])
    cost = step_cost(one, Bounds(2, 100, 1.0, 50, 32, worth), four, four, np.ones(1), 50)
    np.testing.assert_allclose(cost, [0.27], rtol=1e-6)
    fast = Bounds(2, 100, 1.0, 50, 32, Worth(hour_usd=math.inf))
    np.testing.assert_allclose(step_cost(one, fast, four, four, np.ones(1), 50), [3.0], rtol=1e-6)


def test_steps_at_once_are_about_equal_shares_of_what_is_left() -> None:
    assert lengths(50, 50) == [2, 3, 4, 5, 7, 8, 9, 10, 13, 17, 25, 50]
    assert lengths(50, 20) == [2, 3, 4, 5, 7, 8, 9, 10, 13, 17]
    assert lengths(1, 50) == lengths(7, 1) == []


def test_a_slope_is_taken_for_less_than_it_seems_by_its_standard_error() -> None:
    """Four rounds at loads 0, 0, 1, 1, medians 1 and 3, 4 and 6: 3 a load, standard error sqrt(4 / 2 / 1) = 1.41."""
    medians = np.array([[0.0, 1.0], [0.0, 3.0], [1.0, 4.0], [1.0, 6.0]])
    assert slope_of(medians) == pytest.approx(3.0 - math.sqrt(2.0))
    assert slope_of(medians * [1.0, -1.0]) == 0.0


def test_a_slope_that_was_tried_counts_by_what_it_is_sure_of() -> None:
    """Tried 6, so known to 3: weights 1/2 and 1/9."""
    medians = np.array([[0.0, 1.0], [0.0, 3.0], [1.0, 4.0], [1.0, 6.0]])
    assert slope_of(medians, 6.0) == pytest.approx((3.0 / 2 + 6.0 / 9) / (1 / 2 + 1 / 9))


# --- whole runs ------------------------------------------------------------------------------------------------------


@lru_cache
def played(slope_s: float, hour_usd: float, models: int, *, expected: bool = True) -> Simulation:
    rng = np.random.default_rng(11)
    rows = 1.0 + rng.exponential(0.3, size=(60, 256))
    rows[rng.random(rows.shape) < 0.02] += 6.0
    options = SimulationOptions(
        jobs=models * STEPS,
        models=models,
        limits=Limits(concurrency=256),
        load=LoadModel(slope_s),
        worth=Worth(hour_usd=hour_usd),
        expected=Expected(EXPECTED, 1.3 * slope_s) if expected else None,
        stretches=True,
    )
    return simulate(rows, "pipeline-auto", {}, options)


def bill_usd(run: Simulation) -> float:
    return run.billed_s * HELD_USD + run.invocations * CALL_USD


RUNS = {
    # (slope, V, models): seconds, dollars, jobs
    (0.05, 10.0, 4): (3.84, 0.001029, 4),
    (4.0, 0.0, 4): (201.34, 0.026831, 4),
    (4.0, 10.0, 4): (124.45, 0.122104, 200),
    (4.0, math.inf, 4): (80.93, 0.557848, 200),
    (40.0, 10.0, 1): (160.99, 0.282322, 50),
    (4.0, 10.0, 64): (202.80, 0.429542, 64),
}


@pytest.mark.parametrize(("slope_s", "hour_usd", "models"), RUNS)
def test_runs(slope_s: float, hour_usd: float, models: int) -> None:
    run = played(slope_s, hour_usd, models)
    total_s, usd, jobs = RUNS[slope_s, hour_usd, models]
    assert run.total_s == pytest.approx(total_s, rel=0.02)
    assert bill_usd(run) == pytest.approx(usd, rel=0.02)
    assert run.rounds == jobs


def test_what_waiting_is_worth_is_paid_for() -> None:
    found = [played(4.0, hour_usd, 4) for hour_usd in (0.0, 10.0, math.inf)]
    assert [run.total_s for run in found] == sorted((run.total_s for run in found), reverse=True)
    assert [bill_usd(run) for run in found] == sorted(bill_usd(run) for run in found)


def test_a_short_run_that_begins_with_what_others_measured_costs_less() -> None:
    knowing, learning = played(0.05, 10.0, 4), played(0.05, 10.0, 4, expected=False)
    cost = [bill_usd(run) + 10 / 3600 * run.total_s for run in (knowing, learning)]
    assert cost[0] < cost[1]
