"""The probe in virtual time: it finds the delays and the slope that it was given, outliers and failures or not."""

from __future__ import annotations

import numpy as np
import pytest

from gradmux.orchestrator.delays.load_fit import fit_load
from gradmux.orchestrator.delays.probe import Measured, Probe, ProbePlan, probe
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.schemes.scheme import FloatArray

PLAN = ProbePlan(workers=8, loads=(0.1, 0.4, 0.8), rounds=6, patience_s=100.0)


def fleet(delays_s: FloatArray, slope_s: float = 2.0) -> ProfileFleet:
    return ProfileFleet(DelayTable(delays_s, delays_s.shape[1]), LoadModel(slope_s=slope_s))


def test_base_and_slope_are_found() -> None:
    found = probe(fleet(np.full((18, 8), 1.5)), PLAN)
    assert found.fit is not None
    assert found.fit.slope_s == pytest.approx(2.0)
    assert found.fit.base_s == pytest.approx(1.5)
    profile = found.profile("p")
    np.testing.assert_allclose(profile.delays_s, 1.7)
    assert (profile.rounds, profile.workers, profile.load) == (18, 8, 0.1)
    assert profile.slope_s == pytest.approx(2.0)


def test_outliers_and_failures_move_neither_base_nor_slope() -> None:
    delays = np.full((18, 8), 1.5)
    delays[2, 3] = 40.0
    delays[5, 0] = delays[7, 1] = np.inf
    found = probe(fleet(delays), PLAN)
    assert found.fit is not None
    assert found.fit.slope_s == pytest.approx(2.0)
    assert sum(int(one.failed.sum()) for one in found.measured) == 2
    assert found.profile("p").failed.sum() == 2


def test_rounds_keep_their_order_over_the_loads() -> None:
    delays = 1.0 + np.arange(18.0)[:, None] * np.ones((1, 8))
    found = probe(fleet(delays, slope_s=0.0), PLAN)
    assert found.fit is not None
    raw = np.stack([one.delay_s for one in found.measured], axis=1).reshape(18, 8)
    np.testing.assert_allclose(raw, delays)


def test_what_does_not_come_in_time_counts_as_failed_and_never_as_an_answer_of_the_next_round() -> None:
    delays = np.full((18, 8), 1.0)
    delays[0, 5] = 500.0
    found = probe(fleet(delays), PLAN)
    assert found.measured[0].failed[0, 5]
    assert sum(int(one.failed.sum()) for one in found.measured) == 1


def test_a_load_at_which_nothing_answers_is_an_error() -> None:
    delays = np.full((18, 8), 1.0)
    delays[1::3] = np.inf
    with pytest.raises(ConfigError, match=r"no invocation at load 0\.4 answered"):
        probe(fleet(delays), PLAN)


@pytest.mark.parametrize("loads", [(), (0.0,), (0.5, 0.2), (0.2, 0.2), (1.5,)])
def test_impossible_loads_get_one_line(loads: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="loads"):
        ProbePlan(workers=2, loads=loads, rounds=1, patience_s=1.0)


def test_delays_of_other_loads_stay_possible() -> None:
    """Answers that vary by more than the load makes of them: half of those to the largest load come as fast as any."""
    rng = np.random.default_rng(5)
    small = rng.uniform(0.9, 1.1, (6, 8))
    large = np.where(rng.random((6, 8)) < 0.45, 1.0, 6.0)
    measured = tuple(
        Measured(load, delay_s, delay_s / 2, np.zeros((6, 8), dtype=np.bool_), 1.0)
        for load, delay_s in ((0.1, small), (1.0, large))
    )
    found = Probe(measured, fit_load([one.profile("") for one in measured])).profile("p")
    assert found.delays_s.min() > 0.1, "none is shifted below what a call takes"
    assert np.median(found.delays_s[1::2]) == pytest.approx(np.median(small), rel=0.05)
