"""A delay profile checks what it is given, and every drawing from it keeps delays, marks and figures together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradmux.orchestrator.delays import DelayProfile, Failures
from gradmux.orchestrator.errors import ConfigError


@st.composite
def profiles(draw: st.DrawFn) -> DelayProfile:
    """Profiles with distinct delays (so that a cell is known by its delay), failures and cold starts."""
    rounds, workers = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    order = draw(st.permutations(range(rounds * workers)))
    delays_s = np.array(order, dtype=np.float64).reshape(rounds, workers) + 0.5
    failed = draw(arrays.arrays(np.bool_, (rounds, workers)))
    failed[:, 0] = False
    cold = draw(arrays.arrays(np.bool_, (rounds, workers)))
    return DelayProfile(delays_s, load=0.25, slope_s=2.0, cold=cold, failed=failed, name="drawn")


def marks_of(profile: DelayProfile) -> dict[float, bool]:
    """Delay -> cold, for every answer: what must hold wherever a delay is moved to."""
    answered = ~profile.failed
    return dict(zip(profile.delays_s[answered].tolist(), profile.cold[answered].tolist(), strict=True))


@given(profiles())
def test_a_failed_invocation_is_infinitely_slow(profile: DelayProfile) -> None:
    assert np.array_equal(np.isinf(profile.delays_s), profile.failed)


def test_an_infinite_delay_counts_as_failed() -> None:
    profile = DelayProfile(np.array([[1.0, np.inf]]))
    assert profile.failed.tolist() == [[False, True]]


def test_a_failed_answer_is_not_kept_as_a_fast_one() -> None:
    profile = DelayProfile(np.array([[0.01, 1.0]]), failed=np.array([[True, False]]))
    assert profile.delays_s.tolist() == [[np.inf, 1.0]]


@pytest.mark.parametrize(
    ("delays_s", "message"),
    [
        ([[1.0, -0.5]], "1 of 2 delays are negative, the first in round 0, worker 1"),
        ([[1.0], [np.nan]], "1 of 2 delays are not a number, the first in round 1, worker 0"),
        ([[-np.inf, 1.0]], "negative"),
        ([[np.inf, np.inf]], "failed invocations only"),
        (np.zeros((0, 4)), "empty: 0 rounds, 4 workers"),
        (np.zeros((4, 0)), "empty: 4 rounds, 0 workers"),
        ([1.0, 2.0], "1 dimension"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(delays_s: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        DelayProfile(np.array(delays_s))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"load": -0.1}, "load of a delay profile"),
        ({"base_load": np.nan}, "base_load of a delay profile"),
        ({"slope_s": np.inf}, "slope_s of a delay profile"),
    ],
)
def test_figures_must_make_sense(figures: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DelayProfile(np.ones((1, 1)), **figures)  # type: ignore[arg-type]


def test_marks_of_another_shape_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cold has shape \(1, 2\), but the delays have \(2, 2\)"):
        DelayProfile(np.ones((2, 2)), cold=np.ones((1, 2), dtype=np.bool_))


def test_one_worker_and_one_round_is_a_profile() -> None:
    assert (DelayProfile(np.ones((1, 1))).rounds, DelayProfile(np.ones((1, 1))).workers) == (1, 1)


def test_a_profile_cannot_be_written_to_and_copies_what_it_is_given() -> None:
    given_s = np.ones((1, 2))
    profile = DelayProfile(given_s)
    given_s[0, 0] = 9.0
    assert profile.delays_s[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        profile.delays_s[0, 0] = 2.0


def test_load_shifts_every_delay_alike() -> None:
    profile = DelayProfile(np.array([[1.0, 2.0, np.inf]]), load=0.5, slope_s=2.0)
    assert profile.delays_at(0.75).tolist() == [[1.5, 2.5, np.inf]]
    assert profile.delays_at(0.75, slope_s=4.0, base_load=0.25).tolist() == [[3.0, 4.0, np.inf]]
    assert DelayProfile(np.ones((1, 1)), load=0.5).delays_at(1.0).tolist() == [[1.0]]


@given(profiles(), st.integers(1, 20))
def test_round_t_of_a_tiled_profile_is_row_t_mod_rows(profile: DelayProfile, rounds: int) -> None:
    tiled = profile.tile(rounds)
    assert tiled.rounds == rounds
    for row in range(rounds):
        assert np.array_equal(tiled.delays_s[row], profile.delays_s[row % profile.rounds])
        assert np.array_equal(tiled.cold[row], profile.cold[row % profile.rounds])


@given(profiles(), st.integers(0, 99), st.integers(1, 9), st.integers(1, 15))
def test_a_resampled_profile_is_made_of_runs_of_measured_rounds(
    profile: DelayProfile, seed: int, block: int, rounds: int
) -> None:
    drawn = profile.resample(seed=seed, rounds=rounds, block=block)
    known = {tuple(row): index for index, row in enumerate(profile.delays_s.tolist())}
    rows = [known[tuple(row)] for row in drawn.delays_s.tolist()]
    assert len(rows) == rounds
    for index in range(1, rounds):
        if index % block:
            assert rows[index] == (rows[index - 1] + 1) % profile.rounds
    assert drawn.same_as(profile.resample(seed=seed, rounds=rounds, block=block))


@given(profiles(), st.floats(0.01, 0.99))
def test_a_split_loses_nothing(profile: DelayProfile, share: float) -> None:
    if profile.rounds == 1:
        with pytest.raises(ConfigError, match="one round cannot be split"):
            profile.split(share)
        return
    train, held_out = profile.split(share)
    assert min(train.rounds, held_out.rounds) >= 1
    assert np.array_equal(np.vstack([train.delays_s, held_out.delays_s]), profile.delays_s)
    assert np.array_equal(np.vstack([train.cold, held_out.cold]), profile.cold)


def test_figures_and_name_travel_with_every_drawing() -> None:
    profile = DelayProfile(np.ones((4, 4)), load=0.5, slope_s=1.5, base_load=0.25, name="kept")
    for drawn in (profile.tile(9), profile.resample(seed=0), profile.split(0.5)[1]):
        assert (drawn.load, drawn.slope_s, drawn.base_load, drawn.name) == (0.5, 1.5, 0.25, "kept")


def test_when_a_failure_was_found_stands_beside_it_and_goes_with_its_round() -> None:
    delays, failed = np.array([[0.5, 1.0], [np.inf, 2.0]]), np.array([[True, False], [True, False]])
    profile = DelayProfile(delays, failed=failed)
    assert profile.found_s.tolist() == [[0.5, np.inf], [np.inf, np.inf]]
    assert profile.take(np.array([1, 0, 0])).found_s[:, 0].tolist() == [np.inf, 0.5, 0.5]
    assert profile.same_as(profile.take(np.arange(2)))
    assert not profile.same_as(DelayProfile(np.array([[np.inf, 1.0], [np.inf, 2.0]])))
    instants = profile.failures(timeout_s=3.0).instants(profile.delays_s)
    assert instants.tolist() == [[0.5, 0.0], [3.0, 0.0]]
    late = DelayProfile(np.array([[9.0, 1.0]]), failed=failed[:1])
    assert late.failures(3.0).instants(late.delays_s)[0, 0] == 3.0


def test_a_timeout_is_a_duration() -> None:
    with pytest.raises(ConfigError, match="timeout_s must be a number of seconds above 0"):
        Failures(0.0)


@pytest.mark.parametrize("odd", [np.nan, -1.0])
def test_when_a_failure_is_found_is_a_duration_too(odd: float) -> None:
    with pytest.raises(ConfigError, match="found_s, when failed calls are found, must be seconds >= 0"):
        Failures(found_s=np.array([[odd, 1.0]]))


def test_what_is_found_is_of_the_same_calls() -> None:
    with pytest.raises(ConfigError, match=r"found_s has shape \(1, 2\), but the delays have \(1, 3\)"):
        Failures(found_s=np.ones((1, 2))).instants(np.array([[np.inf, 1.0, 2.0]]))
