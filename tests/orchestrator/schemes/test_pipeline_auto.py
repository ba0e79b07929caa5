"""What `pipeline-auto` learns and how it chooses: the estimate against the truth, the sizes against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.asks import BacksUp, Call, Following
from gradmux.orchestrator.schemes.delay_estimate import DelayEstimate, Delays
from gradmux.orchestrator.schemes.pipeline_auto import AutoPipeline, DealtJob
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, FloatArray, Key
from gradmux.orchestrator.schemes.sizing import Bounds, Size, best_size, latency_s
from gradmux.orchestrator.schemes.worth import Worth


def heard(delays: FloatArray, loads: FloatArray, slope_s: float = 0.0, workers: int | None = None) -> DelayEstimate:
    """An estimate that saw (rounds, workers) delays, each round at its load, one after the other."""
    rounds, columns = delays.shape
    estimate, now_s = DelayEstimate(workers or columns), 0.0
    for t in range(rounds):
        took_s = delays[t] + slope_s * loads[t]
        for worker in range(columns):
            estimate.began(Call(t, worker, 1), float(loads[t]), now_s)
        for worker in np.argsort(took_s).tolist():
            estimate.ended(Call(t, worker, 1), now_s + float(took_s[worker]), answered=True)
        now_s += float(took_s.max())
    return estimate


def built(workers: int, *, models: int = 1, concurrency: int | None = None, jobs: int = 100) -> AutoPipeline:
    context = Context(workers, jobs, models=models, concurrency=concurrency)
    scheme = build_scheme("pipeline-auto", {}, context)
    assert isinstance(scheme, AutoPipeline)
    return scheme


# --- the estimate ----------------------------------------------------------------------------------------------------


@given(st.floats(0.0, 20.0), st.integers(0, 99))
def test_slope_and_distribution_are_found(slope_s: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = 1.0 + rng.exponential(0.2, size=(24, 60))
    estimate = heard(base, np.tile([0.5, 0.25, 0.125, 0.0625], 6), slope_s)
    found = estimate.delays()
    assert estimate.ready
    assert found.slope_s == pytest.approx(slope_s, abs=0.15)
    assert found.mean_s == pytest.approx(base.mean(), abs=0.06)
    median_s = found.times_s[np.searchsorted(-found.survival, -0.5)]
    assert median_s == pytest.approx(np.median(base), abs=0.06)


def test_of_one_load_alone_the_slope_is_part_of_the_delays() -> None:
    estimate = heard(np.ones((10, 4)), np.full(10, 0.5), 3.0)
    assert estimate.ready
    found = estimate.delays()
    assert found.slope_s == 0.0
    assert found.mean_s == pytest.approx(2.5)


def test_noise_alone_is_not_taken_for_a_slope() -> None:
    """Two kinds of rounds, whatever their load: a fit would see a slope of many seconds either way."""
    rng = np.random.default_rng(0)
    found = [
        heard(rng.choice([2.0, 17.0], size=(8, 1)) + rng.random((8, 9)), np.tile([0.5, 0.25], 4)).delays().slope_s
        for _ in range(40)
    ]
    assert np.mean([slope_s == 0.0 for slope_s in found]) > 0.7


EIGHTHS = st.integers(1, 80).map(lambda count: count / 8)


@given(st.lists(EIGHTHS, min_size=1, max_size=12, unique=True), st.lists(EIGHTHS, max_size=6))
def test_survival_is_kaplan_and_meier_s(ended: list[float], running: list[float]) -> None:
    """Product over the ended times up to x of 1 - 1 / (those that lasted at least as long), by the definition."""
    estimate, now_s = DelayEstimate(40), 100.0
    for t in range(6):
        estimate.began(Call(t, 0, 1), 0.5 if t % 2 else 0.25, 0.0)
        estimate.ended(Call(t, 0, 1), 1.0, answered=True)
    for index, took_s in enumerate(ended):
        estimate.began(Call(9, index, 1), 0.375, now_s - 50.0)
        estimate.ended(Call(9, index, 1), now_s - 50.0 + took_s, answered=True)
    for index, age_s in enumerate(running):
        estimate.began(Call(10, index, 1), 0.5, now_s - age_s)
    estimate.began(Call(11, 0, 1), 0.5, now_s)
    found = estimate.delays()
    assert found.slope_s == 0.0
    all_s = np.array([1.0] * 6 + ended)
    lasted = np.concatenate([all_s, running, [0.0]])
    for x, survival in zip(found.times_s, found.survival, strict=True):
        if np.sum(np.abs(all_s - x) < 1e-9) == 1:
            before = [y for y in sorted(set(all_s.round(9))) if y <= x + 1e-9]
            factors = [1 - np.sum(np.abs(all_s - y) < 1e-9) / np.sum(lasted >= y - 1e-9) for y in before]
            assert survival == pytest.approx(np.prod(factors), abs=1e-9)


def test_what_is_in_flight_for_long_counts_as_slow_before_it_answers() -> None:
    estimate = heard(np.ones((6, 4)), np.array([0.5, 0.25] * 3))
    before = estimate.delays().mean_s
    for worker in range(4):
        estimate.began(Call(7, worker, 1), 0.5, 10.0)
    estimate.began(Call(8, 0, 1), 0.5, 40.0)
    after = estimate.delays()
    assert before == pytest.approx(1.0)
    assert after.survival[-1] == pytest.approx(4 / 28)


def test_a_failure_is_no_delay() -> None:
    estimate = heard(np.ones((6, 4)), np.array([0.5, 0.25] * 3))
    estimate.began(Call(7, 0, 1), 0.5, 50.0)
    estimate.ended(Call(7, 0, 1), 99.0, answered=False)
    assert estimate.delays().times_s.max() == pytest.approx(1.0)


def test_fast_workers_are_ranked_first_and_unknown_ones_in_between() -> None:
    delays = np.ones((12, 6))
    delays[:, 4], delays[:, 1] = 0.5, 9.0
    estimate = heard(delays, np.tile([0.5, 0.25], 6), workers=8)
    ranked = estimate.ranked(np.array([7, 1, 0, 2, 6, 3, 4, 5])).tolist()
    assert ranked[0] == 4
    assert ranked[-1] == 1
    assert ranked.index(0) < ranked.index(7)
    assert [w for w in ranked if w in (0, 2, 3, 5)] == [0, 2, 3, 5], "those not told apart keep their order"


# --- the size --------------------------------------------------------------------------------------------------------


def drawn(delays: FloatArray, slope_s: float) -> Delays:
    times_s = np.sort(delays)
    return Delays(times_s, 1.0 - np.arange(1, len(times_s) + 1) / len(times_s), slope_s)


@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (12, 1), (12, 4), (16, 16), (48, 8)])
def test_the_latency_is_that_of_simulated_jobs(workers: int, groups: int) -> None:
    rng = np.random.default_rng(3)
    seen = 1.0 + rng.lognormal(-1.0, 0.8, size=20_000)
    expected = latency_s(drawn(seen, 2.0), np.array([float(workers)]), np.array([float(groups)]))[0]
    draws = rng.choice(seen, size=(4000, groups, workers // groups)).min(axis=2).max(axis=1) + 2.0 / groups
    assert abs(draws.mean() - expected) < 4 * draws.std() / np.sqrt(len(draws)) + 1e-3


def test_more_compute_makes_more_groups_and_slower_answers_fewer_workers() -> None:
    rng = np.random.default_rng(1)
    fast = Worth(hour_usd=np.inf)
    bounds = Bounds(models=4, concurrency=256, busy=0.9, most_workers=128, most_groups=64, worth=fast)
    delays = 1.0 + rng.lognormal(-1.5, 0.6, size=1000)
    groups = [best_size(drawn(delays, slope_s), bounds).groups for slope_s in (0.0, 0.5, 5.0, 500.0)]
    assert groups == sorted(groups)
    assert groups[0] == 1
    assert groups[-1] == 64
    heavy = np.where(rng.random(1000) < 0.9, 15.0 * delays, delays)
    assert best_size(drawn(heavy, 0.0), bounds).workers < best_size(drawn(delays, 0.0), bounds).workers


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(1, 300), st.integers(1, 60), st.floats(0.0, 100.0), st.integers(0, 9))
def test_a_size_fits_its_bounds(models: int, concurrency: int, most: int, slope_s: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = 1 << (most.bit_length() - 1)
    bounds = Bounds(models, concurrency, 0.9, most, groups)
    size = best_size(drawn(rng.exponential(1.0, size=50), slope_s), bounds)
    assert 1 <= size.groups <= size.workers <= most
    assert size.groups <= groups


def test_all_else_being_equal_few_workers_are_enough() -> None:
    bounds = Bounds(models=1, concurrency=64, busy=1.0, most_workers=64, most_groups=64)
    assert best_size(drawn(np.ones(50), 0.0), bounds) == Size(1, 1)


# --- the scheme ------------------------------------------------------------------------------------------------------


def test_it_asks_to_follow_and_to_back_up() -> None:
    scheme = built(8)
    assert isinstance(scheme, Following)
    assert isinstance(scheme, BacksUp)


def test_by_hand() -> None:
    job = DealtJob(0, [[1, 3], [0]], 4)
    assert [job.load(worker, np.full(4, 0.25)) for worker in (1, 3, 0)] == [0.5] * 3
    tasks = {worker: task.chunks for worker, (task,) in job.tasks().items() if task is not None}
    assert list(tasks.items()) == [(1, (0, 1)), (0, (2, 3)), (3, (0, 1))]
    job.add(3)
    assert job.wanted() == [0]
    assert job.combine(estimate=True).missing == 0.5
    job.add(1)
    job.add(0)
    assert job.complete
    assert job.combine(estimate=False).weights == {Key(0, 3, 0): 1.0, Key(0, 0, 0): 1.0}


def test_it_starts_with_three_quarters_of_a_share_and_tries_several_group_counts() -> None:
    scheme = built(256, models=4, concurrency=256)
    sizes = [(len(tasks), 1.0 / _load(scheme, tasks)) for tasks in (scheme.assign(t) for t in range(8))]
    assert sizes == [(48, 32), (48, 16), (48, 8), (48, 32)] * 2


def test_groups_mix_fast_and_slow_workers() -> None:
    """Ranks 0, 3, 4, 7 against 1, 2, 5, 6: dealt there and back."""
    scheme = built(8, concurrency=8)
    for round_index in range(12):
        for worker in range(8):
            scheme._estimate.began(Call(100 + round_index, worker, 1), 0.5, 0.0)
        for worker in range(8):
            scheme._estimate.ended(Call(100 + round_index, worker, 1), 1.0 + worker, answered=True)
    assert scheme._deal(0, Size(8, 2)) == [[0, 3, 4, 7], [1, 2, 5, 6]]
    assert sorted(w for group in scheme._deal(0, Size(5, 2)) for w in group) == [0, 1, 2, 3, 4]


def test_sizes_follow_delays_that_change() -> None:
    """Compute becomes a hundred times dearer in the middle of the run: the groups become more."""
    scheme = built(64, concurrency=64, jobs=800)
    rng, now_s, groups = np.random.default_rng(2), 0.0, []
    for t in range(800):
        tasks = scheme.assign(t)
        load = _load(scheme, tasks)
        groups.append(round(1 / load))
        slope_s = 0.05 if t < 400 else 5.0
        took_s = 1.0 + rng.lognormal(-2.0, 0.5, size=len(tasks)) + slope_s * load
        for worker in tasks:
            scheme.began(Call(t, worker, 1), now_s)
        for worker, delay_s in sorted(zip(tasks, took_s.tolist(), strict=True), key=lambda pair: pair[1]):
            scheme.heard(Key(t, worker, 0))
            scheme.ended(Call(t, worker, 1), now_s + delay_s, answered=True)
        scheme.end_round(t)
        scheme.decode(t)
        now_s += float(took_s.max())
    assert np.mean(groups[300:400]) < 4
    assert np.mean(groups[-100:]) > 8


def _load(scheme: AutoPipeline, tasks: object) -> float:
    assert isinstance(tasks, dict)
    task = next(iter(tasks.values()))[0]
    return float(task.load(scheme.chunk_sizes))


@pytest.mark.parametrize("busy", [0, 1.5])
def test_a_share_must_be_one(busy: float) -> None:
    with pytest.raises(ConfigError, match=r"rho \(busy\) = .* use 0 < rho <= 1"):
        build_scheme("pipeline-auto", {"rho": busy}, Context(4, 1))
