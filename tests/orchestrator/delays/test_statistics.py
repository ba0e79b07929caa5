"""The figures of a profile: by hand on small ones, against chance on large ones, JSON throughout."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradmux.orchestrator.delays import DelayProfile, summarise
from gradmux.orchestrator.delays.statistics import TAIL, burst_lengths

BY_HAND = DelayProfile(
    np.array(
        [
            [1.0, 1.0, 3.0, 1.0],
            [1.0, 1.0, 3.0, 1.0],
            [2.0, 9.0, 2.0, 2.0],
            [1.0, 1.0, 3.0, 1.0],
        ]
    ),
    name="by hand",
)
"""At mu = 1: worker 2 straggles in rounds 0, 1 and 3, worker 1 in round 2."""


def test_straggling_by_hand() -> None:
    at_one = summarise(BY_HAND).straggling[0]
    assert at_one.share == 4 / 16
    assert at_one.share_sd == 0.0
    assert at_one.bursts == (2, 1)
    assert (at_one.burst_mean, at_one.burst_max) == (4 / 3, 2)
    # Counts per index 0, 1, 3, 0: variance 1.5; by chance 4 rounds of 1/4 * 3/4 = 0.75.
    assert at_one.persistence == pytest.approx(2.0)
    # 6 ordered pairs of rounds share their straggler, of 12 pairs; by chance 1 in 4 would.
    assert at_one.repeat_ratio == pytest.approx(2.0)
    # (6 - 12/4) / (12 * 3/4)
    assert at_one.correlation == pytest.approx(1 / 3)
    # Of the three consecutive pairs, the first has correlation 1 and the others -1/3.
    assert at_one.lag1_correlation == pytest.approx((1 - 1 / 3 - 1 / 3) / 3)


def test_times_by_hand() -> None:
    summary = summarise(BY_HAND)
    assert (summary.rounds, summary.workers, summary.name) == (4, 4, "by hand")
    assert (summary.median_s, summary.fastest_s, summary.slowest_s, summary.slowest_mean_s) == (1.0, 1.0, 3.0, 4.5)
    assert summary.tail_relative[0] == 1.0
    assert summary.tail_s[-1] == pytest.approx(np.quantile(BY_HAND.delays_s, 0.999))
    assert summary.round_sd_s == pytest.approx(np.std([1, 1, 2, 1]))


def test_outliers_by_hand() -> None:
    delays_s = np.ones((4, 5))
    delays_s[1, 2] = 5.1
    delays_s[2, 0] = 5.0
    summary = summarise(DelayProfile(delays_s))
    assert (summary.outlier_share, summary.outlier_rounds_share) == (1 / 20, 1 / 4)


def test_a_straggler_is_strictly_later_than_the_cut() -> None:
    summary = summarise(DelayProfile(np.array([[1.0, 2.0, 2.0000001]])), tolerances=[1.0])
    assert summary.straggling[0].share == 1 / 3


def test_failures_and_cold_starts_are_counted_and_kept_out_of_the_rest() -> None:
    clean = DelayProfile(np.tile([1.0, 1.1, 2.5], (3, 1)))
    delays_s = np.hstack([clean.delays_s, np.full((3, 1), 50.0)])
    cold, failed = np.zeros((3, 4), dtype=bool), np.zeros((3, 4), dtype=bool)
    cold[:2, 3], failed[2, 3] = True, True
    marked = summarise(DelayProfile(delays_s, cold=cold, failed=failed))
    assert (marked.failed_share, marked.cold_share) == (1 / 12, 2 / 11)
    plain = summarise(clean)
    for mine, theirs in zip(marked.straggling, plain.straggling, strict=True):
        assert list(asdict(mine).values()) == [pytest.approx(value) for value in asdict(theirs).values()]
    assert (marked.tail_s, marked.slowest_mean_s) == (plain.tail_s, plain.slowest_mean_s)


def test_a_profile_of_cold_starts_alone_is_described_by_them() -> None:
    summary = summarise(DelayProfile(np.array([[1.0, 3.0]]), cold=np.ones((1, 2), dtype=bool)))
    assert (summary.cold_share, summary.median_s) == (1.0, 2.0)


def test_a_round_of_failures_counts_as_failures_alone() -> None:
    summary = summarise(DelayProfile(np.array([[1.0, 3.0], [np.inf, np.inf]])))
    assert (summary.failed_share, summary.rounds, summary.straggling[0].share) == (0.5, 2, 0.5)


def test_persistence_against_chance_and_against_certainty() -> None:
    rng = np.random.default_rng(0)
    chance = np.where(rng.random((200, 400)) < 0.1, 3.0, 1.0)
    certain = np.where(np.arange(400) % 10 == 0, 3.0, 1.0) * np.ones((200, 1))
    by_chance, by_index = (summarise(DelayProfile(delays_s)).straggling[0] for delays_s in (chance, certain))
    assert by_chance.persistence == pytest.approx(1.0, abs=0.2)
    assert by_chance.repeat_ratio == pytest.approx(1.0, abs=0.02)
    assert by_chance.correlation == pytest.approx(0.0, abs=0.005)
    assert by_chance.neighbour_correlation == pytest.approx(0.0, abs=0.15)
    assert by_index.persistence == pytest.approx(200.0)
    assert by_index.repeat_ratio == pytest.approx(10.0)
    assert by_index.correlation == pytest.approx(1.0)
    assert by_index.lag1_correlation == pytest.approx(1.0)


def test_neighbours_that_straggle_together_show() -> None:
    in_runs = np.where(np.arange(256) % 32 < 8, 3.0, 1.0) * np.ones((5, 1))
    alternating = np.where(np.arange(256) % 2 == 0, 3.0, 1.0) * np.ones((5, 1))
    runs, alternate = (summarise(DelayProfile(d)).straggling[0] for d in (in_runs, alternating))
    assert runs.neighbour_correlation == pytest.approx((7 / 32 - 1 / 16) / (3 / 16), abs=0.02)
    assert alternate.neighbour_correlation == pytest.approx(-1.0, abs=0.01)


def test_where_nothing_can_be_said_nothing_is_said() -> None:
    one = summarise(DelayProfile(np.array([[1.0]])))
    assert [at.persistence for at in one.straggling] == [None] * 3
    assert [at.lag1_correlation for at in one.straggling] == [None] * 3
    assert one.straggling[0].bursts == ()
    assert one.straggling[0].burst_mean == 0.0


def test_json_names_the_quantiles_and_holds_no_arrays() -> None:
    plain = summarise(BY_HAND).to_dict()
    again = json.loads(json.dumps(plain, allow_nan=False))
    assert list(again["tail_s"]) == ["0.5", "0.9", "0.99", "0.999"]
    assert [at["mu"] for at in again["straggling"]] == [1.0, 0.5, 0.2]
    assert again["straggling"][0]["bursts"] == [2, 1]


@st.composite
def any_profile(draw: st.DrawFn) -> DelayProfile:
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    delays_s = draw(arrays.arrays(np.float64, shape, elements=st.floats(0.0, 1e6)))
    failed, cold = (draw(arrays.arrays(np.bool_, shape)) for _ in range(2))
    failed[0, 0] = False
    return DelayProfile(delays_s, failed=failed, cold=cold)


@pytest.mark.filterwarnings("error")
@given(any_profile())
def test_every_profile_has_figures_in_their_bounds(profile: DelayProfile) -> None:
    summary = summarise(profile)
    json.dumps(summary.to_dict(), allow_nan=False)
    assert len(summary.tail_s) == len(TAIL)
    assert list(summary.tail_s) == sorted(summary.tail_s)
    assert 0 <= summary.fastest_s <= summary.slowest_s
    for share in (summary.cold_share, summary.failed_share, summary.outlier_share, summary.outlier_rounds_share):
        assert 0.0 <= share <= 1.0
    shares = [at.share for at in summary.straggling]
    assert shares == sorted(shares)
    for at in summary.straggling:
        assert sum(at.bursts) == 0 or at.burst_max == len(at.bursts)
        assert at.correlation is None or -1.0 - 1e-9 <= at.correlation <= 1.0 + 1e-9


@given(arrays.arrays(np.bool_, st.tuples(st.integers(1, 8), st.integers(1, 5))))
def test_burst_lengths_are_those_of_a_plain_count(straggles: np.ndarray) -> None:
    counted = []
    for column in straggles.T.tolist():
        runs = "".join("x" if cell else " " for cell in column).split()
        counted += [len(run) for run in runs]
    assert burst_lengths(straggles).tolist() == counted
