"""Base and slope of the delays over the load: exact on a line, untouched by outliers, true to the measured traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.delays import DelayProfile, fit_load, load_profile, theil_sen
from gradmux.orchestrator.errors import ConfigError


@given(
    st.floats(-5, 5),
    st.floats(0, 5),
    st.lists(st.floats(0, 1), min_size=2, max_size=20, unique_by=lambda x: round(x, 3)),
)
def test_a_line_is_found_exactly(slope_s: float, base_s: float, loads: list[float]) -> None:
    at = np.array(loads)
    fit = theil_sen(at, base_s + slope_s * at)
    assert fit.slope_s == pytest.approx(slope_s, abs=1e-6)
    assert fit.base_s == pytest.approx(base_s, abs=1e-6)
    assert fit.at(2.0) == pytest.approx(base_s + 2 * slope_s, abs=1e-5)


def made(load: float, rounds: int = 20, workers: int = 64, seed: int = 0) -> DelayProfile:
    noise_s = np.random.default_rng([seed, int(100 * load)]).exponential(0.05, size=(rounds, workers))
    return DelayProfile(1.0 + 0.8 * load + noise_s, load=load)


def test_outliers_of_40_s_do_not_move_the_slope() -> None:
    loads = (0.0, 0.25, 0.5, 1.0)
    clean = [made(load) for load in loads]
    spoilt = []
    for index, profile in enumerate(clean):
        delays_s = profile.delays_s.copy()
        delays_s[:, : 4 * index] += 40.0
        delays_s[0] += 40.0 * index
        spoilt.append(DelayProfile(delays_s, load=profile.load))
    assert fit_load(clean).slope_s == pytest.approx(0.8, abs=0.02)
    assert fit_load(spoilt).slope_s == pytest.approx(0.8, abs=0.03)
    by_means = np.polyfit(loads, [profile.delays_s.mean() for profile in spoilt], 1)[0]
    assert by_means > 5.0


def test_the_quartiles_enclose_the_slope() -> None:
    fit = fit_load([made(0.0), made(1.0)])
    assert fit.slope_low_s < fit.slope_s < fit.slope_high_s
    assert fit.points == 40


def test_failed_and_cold_answers_do_not_count() -> None:
    low, high = made(0.0), made(1.0)
    cold = np.zeros(high.delays_s.shape, dtype=bool)
    cold[:, :40] = True
    marked = DelayProfile(np.where(cold, 9.0, high.delays_s), load=1.0, cold=cold)
    failing = DelayProfile(np.where(np.arange(20)[:, None] < 12, np.inf, low.delays_s), load=0.0)
    assert fit_load([low, marked]).slope_s == pytest.approx(0.8, abs=0.03)
    fit = fit_load([failing, high])
    assert fit.points == 28
    assert fit.slope_s == pytest.approx(0.8, abs=0.03)


def test_many_rounds_are_thinned_out_evenly() -> None:
    fit = fit_load([made(0.0, rounds=1500, workers=4), made(1.0, rounds=1500, workers=4)])
    assert fit.points == 1000
    assert fit.slope_s == pytest.approx(0.8, abs=0.02)


def test_one_load_has_no_slope() -> None:
    with pytest.raises(ConfigError, match=r"two loads or more, got only load 0\.5"):
        fit_load([made(0.5), made(0.5, seed=1)])
    with pytest.raises(ConfigError, match="no delay profile"):
        fit_load([])


@pytest.mark.parametrize(
    ("region", "mean_slope_s"), [("canada-b2048", 1.1218), ("london-b256", 0.2393), ("sydney-b256", 0.3088)]
)
def test_measured_slopes(shared: Path, region: str, mean_slope_s: float) -> None:
    """The published means take the outliers in; medians must come out near."""
    profiles = [load_profile(path) for path in sorted((shared / "profiles").glob(f"cnn-{region}-*.npz"))]
    assert fit_load(profiles).slope_s == pytest.approx(mean_slope_s, abs=0.1)
