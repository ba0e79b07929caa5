"""Generated profiles: repeatable, of the distribution that was asked for, and refused in one line when it is none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.delays import (
    GENERATORS,
    Bursty,
    DelayProfile,
    LambdaLike,
    ShiftedExponential,
    generate,
    parameters_for,
    summarise,
)
from gradmux.orchestrator.delays.statistics import burst_lengths
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.simulate import SimulationOptions, simulate


@settings(max_examples=30)
@given(st.sampled_from(sorted(GENERATORS)), st.integers(1, 12), st.integers(1, 40), st.integers(0, 2**32))
def test_equal_arguments_give_equal_bits_and_other_seeds_other_delays(
    kind: str, rounds: int, workers: int, seed: int
) -> None:
    profile = generate(kind, rounds, workers, seed)
    assert profile.delays_s.shape == (rounds, workers)
    assert np.isfinite(profile.delays_s).all()
    assert profile.same_as(generate(kind, rounds, workers, seed))
    assert not profile.same_as(generate(kind, rounds, workers, seed + 1))
    assert profile.name == kind


def test_shifted_exponential_takes_the_time_that_theory_says() -> None:
    # k = n = 256 tasks, c = 4 per worker, lambda = 0.1: a whole round takes c/n + c H_n / (n lambda) on average.
    workers, per_worker, rate = 256, 4, 0.1
    parameters = ShiftedExponential(load=per_worker / workers, straggling=rate)
    profile = generate("shifted-exponential", 4000, workers, 1, parameters)
    harmonic = sum(1 / k for k in range(1, workers + 1))
    expected_s = per_worker / workers * (1 + harmonic / rate)
    assert profile.delays_s.max(axis=1).mean() == pytest.approx(expected_s, rel=0.02)
    assert profile.delays_s.mean() == pytest.approx(per_worker / workers * (1 + 1 / rate), rel=0.01)
    assert profile.delays_s.min() >= per_worker / workers


def test_shifted_exponential_takes_the_uncoded_load_by_default_and_scales_with_its_unit() -> None:
    one, ten = (
        generate("shifted-exponential", 5, 8, 3, ShiftedExponential(unit_s=unit_s)).delays_s for unit_s in (1.0, 10.0)
    )
    assert one.min() >= 1 / 8
    assert ten == pytest.approx(10 * one)


def test_bursty_workers_are_slow_for_the_share_and_the_length_that_was_asked_for() -> None:
    parameters = Bursty(base_s=1.0, jitter_s=0.0, slow_share=0.1, burst_rounds=4.0, slow_s=1.0)
    delays_s = generate("bursty", 2000, 200, 5, parameters).delays_s
    slow = delays_s > 1.0
    assert slow.mean() == pytest.approx(0.1, abs=0.005)
    assert slow[0].mean() == pytest.approx(0.1, abs=0.07)
    lengths = burst_lengths(slow)
    assert lengths.mean() == pytest.approx(4.0, rel=0.03)
    assert (lengths == 1).mean() == pytest.approx(1 / 4, abs=0.02)
    assert (delays_s[slow] - 1.0).mean() == pytest.approx(1.0, rel=0.03)


def test_bursty_has_a_short_memory_that_the_lag_shows() -> None:
    parameters = Bursty(jitter_s=0.0, slow_share=0.1, burst_rounds=4.0, slow_s=20.0)
    at_one = summarise(generate("bursty", 1000, 200, 5, parameters)).straggling[0]
    # A Gilbert-Elliott chain correlates as (1 - leave - enter) per round: 1 - 1/4 - 1/36.
    assert at_one.lag1_correlation == pytest.approx(1 - 1 / 4 - 1 / 36, abs=0.06)
    assert at_one.correlation == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "overrides", "message"),
    [
        ("bursty", {"burst_rounds": 0.5}, "burst_rounds must be at least 1"),
        ("bursty", {"slow_share": 0.8, "burst_rounds": 2.0}, "burst_rounds must be at least 4"),
        ("bursty", {"slow_share": 1.0}, "slow_share must lie in"),
        ("bursty", {"base_s": -1.0}, "base_s must be >= 0"),
        ("shifted-exponential", {"straggling": 0.0}, "straggling must be above 0"),
        ("shifted-exponential", {"load": math.nan}, "load must be above 0"),
        ("persistent", {"prone_share": 1.5}, r"prone_share must lie in 0 \.\. 1"),
        ("persistent", {"slow_s": -0.1}, "slow_s must lie in"),
        ("persistent", {"slow_s": math.inf}, "slow_s must lie in"),
        ("persistent", {"early_low": 0.9}, r"early_low = 0.9 is above early_high"),
        ("persistent", {"load": 0.0, "slope_s": 5.0}, "fastest answer of"),
        ("persistent", {"speed": 1.0}, "persistent has no parameter 'speed'; it has floor_s, slope_s"),
        ("fast", {}, "no delay generator is called 'fast'; there are shifted-exponential, bursty"),
    ],
)
def test_parameters_are_checked(kind: str, overrides: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parameters_for(kind, overrides)


def test_parameters_replace_the_kinds_own() -> None:
    assert parameters_for("bursty", {"slow_s": 7.0}) == Bursty(slow_s=7.0)
    assert parameters_for("persistent", {}) == GENERATORS["persistent"]
    slow = generate("bursty", 3, 3, 0, Bursty(base_s=5.0))
    assert slow.delays_s.min() >= 5.0


def test_a_kind_takes_its_own_parameters_alone() -> None:
    with pytest.raises(ConfigError, match="bursty takes Bursty parameters, got LambdaLike"):
        generate("bursty", 3, 3, 0, LambdaLike())


@pytest.mark.parametrize(("rounds", "workers", "seed"), [(0, 3, 0), (3, 0, 0), (3, 3, -1)])
def test_shape_and_seed_are_checked(rounds: int, workers: int, seed: int) -> None:
    with pytest.raises(ConfigError):
        generate("bursty", rounds, workers, seed)


PLAIN = LambdaLike(floor_s=1.0, spread_s=0.0, spread_sigma=0.0)


def lambda_like(parameters: LambdaLike, rounds: int = 400, workers: int = 200) -> np.ndarray:
    return generate("lambda-like", rounds, workers, 7, parameters).delays_s


def test_without_any_part_the_model_is_constant_and_the_load_shifts_it() -> None:
    assert (lambda_like(PLAIN) == 1.0).all()
    loaded = generate("lambda-like", 2, 2, 0, replace(PLAIN, slope_s=2.0, load=0.75, base_load=0.25))
    assert (loaded.delays_s == 2.0).all()
    assert (loaded.load, loaded.slope_s) == (0.75, 2.0)


def test_ordinary_answers_spread_log_normally_above_gap_and_floor() -> None:
    above_s = lambda_like(replace(PLAIN, gap_s=0.5, spread_s=0.2, spread_sigma=0.4)) - 1.5
    assert np.median(above_s) == pytest.approx(0.2, rel=0.01)
    assert np.log(above_s).std() == pytest.approx(0.4, rel=0.01)


def test_a_round_shares_its_spread() -> None:
    above_s = lambda_like(replace(PLAIN, spread_s=0.2, spread_sigma=0.0, round_sigma=0.3)) - 1.0
    assert np.ptp(above_s, axis=1).max() < 1e-12
    assert np.log(above_s[:, 0]).std() == pytest.approx(0.3, rel=0.1)


def test_slow_answers_come_at_the_rates_of_their_classes() -> None:
    parameters = replace(PLAIN, prone_share=0.25, prone_rate=0.6, other_rate=0.05, slow_s=0.5, slow_sd_s=0.2)
    slow = lambda_like(parameters) > 1.0
    by_index = slow.mean(axis=0)
    prone = by_index > 0.3
    assert prone.mean() == pytest.approx(0.25, abs=0.1)
    assert by_index[prone].mean() == pytest.approx(0.6, abs=0.02)
    assert by_index[~prone].mean() == pytest.approx(0.05, abs=0.01)
    further_s = lambda_like(parameters)[slow] - 1.0
    assert further_s.mean() == pytest.approx(0.5, rel=0.02)
    assert further_s.std() == pytest.approx(0.2, rel=0.05)


def test_slow_indices_are_neighbours_when_they_come_in_runs() -> None:
    parameters = replace(PLAIN, prone_share=0.25, prone_run=8, prone_rate=1.0)
    slow = lambda_like(parameters, rounds=5, workers=256) > 1.0
    assert (slow == slow[0]).all()
    assert slow[0].sum() == 64
    wrapped = np.concatenate([slow[0], slow[0]])
    starts = np.flatnonzero(np.diff(wrapped.astype(int)) == 1)
    assert set(np.diff(starts).tolist()) == {32}


@pytest.mark.parametrize("run", [1, 8])
def test_a_finite_memory_draws_classes_anew(run: int) -> None:
    parameters = replace(PLAIN, prone_share=0.25, prone_run=run, prone_rate=1.0, prone_rounds=5.0)
    slow = lambda_like(parameters, rounds=4000) > 1.0
    assert slow.mean() == pytest.approx(0.25, abs=0.01)
    centred = slow - 0.25
    for lag in (1, 4):
        correlation = (centred[:-lag] * centred[lag:]).mean() / (0.25 * 0.75)
        assert correlation == pytest.approx(0.8**lag, abs=0.05)


def test_early_answers_take_a_part_of_their_time_above_the_floor() -> None:
    parameters = replace(PLAIN, gap_s=1.0, early_share=0.1, early_low=0.2, early_high=0.4)
    delays_s = lambda_like(parameters)
    early = delays_s < 2.0
    assert early.mean() == pytest.approx(0.1, abs=0.005)
    assert delays_s[early].min() == pytest.approx(1.2, abs=0.01)
    assert delays_s[early].max() == pytest.approx(1.4, abs=0.01)


def test_early_answers_may_vary_by_round_and_avoid_slow_indices() -> None:
    base = replace(PLAIN, gap_s=1.0, early_share=0.1, early_low=0.2, early_high=0.4)
    varied = (lambda_like(replace(base, early_sigma=0.5), rounds=2000) < 2.0).mean(axis=1)
    even = (lambda_like(base, rounds=2000) < 2.0).mean(axis=1)
    assert varied.mean() == pytest.approx(0.1, abs=0.005)
    assert varied.std() > 2 * even.std()
    none = lambda_like(replace(base, prone_share=1.0, early_prone=0.0))
    assert (none == 2.0).all()


def test_slow_rounds_delay_everybody_by_a_mean_of_their_own() -> None:
    delays_s = lambda_like(replace(PLAIN, stretch_rate=0.25, stretch_s=0.5), rounds=4000, workers=50)
    slow = (delays_s > 1.0).any(axis=1)
    assert slow.mean() == pytest.approx(0.25, abs=0.03)
    means_s = delays_s[slow].mean(axis=1) - 1.0
    assert means_s.mean() == pytest.approx(0.5, rel=0.12)
    assert means_s.std() == pytest.approx(0.5, rel=0.2)


def test_outliers_hit_a_few_workers_of_a_rare_round_together() -> None:
    parameters = replace(
        PLAIN, outlier_rate=0.2, outlier_workers=4.0, outlier_s=25.0, outlier_long_s=37.0, outlier_long_share=0.25
    )
    further_s = lambda_like(parameters, rounds=5000) - 1.0
    assert set(np.unique(further_s.round(9)).tolist()) == {0.0, 25.0, 37.0}
    per_round = (further_s > 0).sum(axis=1)
    assert (per_round > 0).mean() == pytest.approx(0.2, abs=0.02)
    assert per_round[per_round > 0].mean() == pytest.approx(4.0, rel=0.08)
    assert (further_s == 37.0).sum() / (further_s > 0).sum() == pytest.approx(0.25, abs=0.03)


def test_changing_one_part_leaves_the_draws_of_the_others() -> None:
    base = GENERATORS["persistent"]
    assert isinstance(base, LambdaLike)
    without = lambda_like(replace(base, outlier_rate=0.0))
    with_outliers = lambda_like(base)
    same = with_outliers == without
    assert 0 < (~same).sum() < 0.01 * same.size
    assert (with_outliers[~same] - without[~same] > 20.0).all()


def test_its_tail_grows_with_the_load_as_the_papers_have_it() -> None:
    """Work c of n takes c/n (1 + Exp): under twice the load every delay, its tail too, is twice as long."""
    profile = generate("shifted-exponential", 50, 8, 1)
    assert profile.scales
    assert np.allclose(profile.delays_at(2 / 8), 2 * profile.delays_s)
    growth = ((None, 1 / 8), (None, 2 / 8), (1.0, 2 / 8))
    models = [LoadModel.of(profile, slope_s, load=load) for slope_s, load in growth]
    once, twice, by_slope = (
        simulate(profile.delays_s, "uncoded", {}, SimulationOptions(jobs=50, load=model)).total_s for model in models
    )
    assert twice == pytest.approx(2 * once)
    assert by_slope == pytest.approx(once + 50 / 8), "a slope that is given counts instead"
    with pytest.raises(ConfigError, match="need the load that they were measured at"):
        DelayProfile(np.ones((1, 1)), scales=True)
