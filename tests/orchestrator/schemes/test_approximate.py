"""Estimates from the first answers: unbiased means, exact where all is heard, and ErasureHead's formulas.

Formulas: SCHEMES' section on shifted-exponential delays (time c/n + Exp(rate n lam / c) for c tasks of n), and
Wang et al. 2019. H_k is the k-th harmonic number.
"""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.approximate import ErasureHead, uncovered
from gradmux.orchestrator.schemes.scheme import FloatArray, Key, Scheme
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from tests.orchestrator.schemes.playing import gradients, make

STANDARD_ERRORS = 4.0


def estimate_of(scheme: Scheme, order: list[int], job: int = 0) -> FloatArray:
    """(dimension,) what `job` is decoded to when workers answer in this order and it stops as soon as it may."""
    tasks = scheme.assign(job)
    for worker in order:
        scheme.heard(Key(job, worker, 0))
        if scheme.decodable(job):
            break
    parts = gradients(len(scheme.chunk_sizes), 0)
    decoding = scheme.decode(job)
    total = np.zeros(parts.shape[1])
    for key, weight in decoding.weights.items():
        task = tasks[key.worker][0]
        assert task is not None
        total += weight * parts[list(task.chunks)].sum(axis=0)
    scheme.end_round(job)
    return total


def exact(scheme: Scheme) -> FloatArray:
    return gradients(len(scheme.chunk_sizes), 0).sum(axis=0)


# --- fastest-k -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("responses", [1, 2, 3, 4])
def test_fastest_k_is_exactly_unbiased_over_all_orders(responses: int) -> None:
    scheme = make("fastest-k", 4, 24, responses=responses)
    mean = np.mean([estimate_of(scheme, list(o), job) for job, o in enumerate(permutations(range(4)))], axis=0)
    assert mean == pytest.approx(exact(scheme), abs=1e-12)


def test_fastest_k_by_hand() -> None:
    scheme = make("fastest-k", 4, 1, responses=3)
    scheme.assign(0)
    for worker in (3, 0):
        scheme.heard(Key(0, worker, 0))
    assert not scheme.decodable(0)
    assert scheme.wanted(0) == (1, 2)
    scheme.heard(Key(0, 1, 0))
    decoding = scheme.decode(0)
    assert decoding.weights == {Key(0, w, 0): pytest.approx(4 / 3) for w in (0, 1, 3)}
    assert decoding.missing == pytest.approx((3 * (1 / 3) ** 2 + 1) / 4)
    assert decoding.residual == 1.0
    assert not scheme.exact
    assert scheme.wanted(0) == ()


@given(st.integers(1, 9), st.data())
def test_fastest_k_of_all_is_uncoded(workers: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(workers)))
    one, other = make("fastest-k", workers, 1, responses=workers), make("uncoded", workers, 1)
    assert one.exact
    assert one.binary
    for scheme in (one, other):
        scheme.assign(0)
        for worker in order:
            assert not scheme.decodable(0)
            scheme.heard(Key(0, worker, 0))
    assert one.decode(0) == other.decode(0)


# --- agc -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "size", "responses"), [(4, 2, 2), (6, 3, 2), (7, 2, 5), (5, 1, 5)])
def test_the_chance_of_an_uncovered_group_is_counted_right(workers: int, size: int, responses: int) -> None:
    heard = list(combinations(range(workers), responses))
    assert uncovered(workers, size, responses) == pytest.approx(np.mean([min(h) >= size for h in heard]))


@pytest.mark.parametrize(
    ("workers", "stragglers", "responses"), [(4, 1, 1), (4, 1, 2), (4, 1, 3), (5, 1, 2), (4, 0, 3)]
)
def test_strict_agc_is_exactly_unbiased_over_all_orders(workers: int, stragglers: int, responses: int) -> None:
    params: dict[str, int | str] = {"stragglers": stragglers, "responses": responses, "unbiased": "true"}
    mean = mean_over_all_orders(workers, params)
    assert mean == pytest.approx(exact(make("agc", workers, 1, **params)), abs=1e-12)


def test_without_the_factors_of_covered_rounds_the_mean_is_too_small() -> None:
    """The negative control: all groups are covered in 2/3 of the orders, and count 1 instead of 6/5 there."""
    params: dict[str, int | str] = {"stragglers": 1, "responses": 2}
    expected = (2 / 3 + 1 / 6 * 6 / 5) * exact(make("agc", 4, 1, **params))
    assert mean_over_all_orders(4, params) == pytest.approx(expected, abs=1e-12)


def mean_over_all_orders(workers: int, params: dict[str, int | str]) -> FloatArray:
    """Of the estimates of job 0, always with the same groups."""
    orders = permutations(range(workers))
    return np.mean([estimate_of(make("agc", workers, 1, **params), list(order)) for order in orders], axis=0)


def test_the_mean_of_many_draws_is_unbiased_within_its_standard_error() -> None:
    """n = 18 in unequal groups of 3 and 4, r = 5; second moments against the formula as well."""
    draws, workers, stragglers, responses = 4000, 18, 2, 5
    scheme = make("agc", workers, draws, stragglers=stragglers + 1, responses=responses, unbiased="true")
    rng = np.random.default_rng(7)
    seen = np.array([estimate_of(scheme, rng.permutation(workers).tolist(), job) for job in range(draws)])
    error = seen.std(axis=0) / math.sqrt(draws)
    assert (np.abs(seen.mean(axis=0) - exact(scheme)) < STANDARD_ERRORS * error).all()
    squares = (seen**2).sum(axis=1)
    assert abs(squares.mean() - second_moment(workers, [5, 5, 4, 4], responses)) < STANDARD_ERRORS * squares.std() / (
        math.sqrt(draws)
    )


def second_moment(workers: int, sizes: list[int], responses: int) -> float:
    """E ||sum over covered q of g_q / (1 - p_q)||^2 = sum over q, q' of <g_q, g_q'> P(both covered) / (P(q) P(q'))."""
    parts = gradients(len(sizes), 0)
    total = 0.0
    for q, size in enumerate(sizes):
        for other, other_size in enumerate(sizes):
            mine, yours = (uncovered(workers, s, responses) for s in (size, other_size))
            neither = uncovered(workers, size if q == other else size + other_size, responses)
            both = 1.0 - mine - yours + neither
            total += float(parts[q] @ parts[other]) * both / ((1.0 - mine) * (1.0 - yours))
    return total


def test_agc_by_hand() -> None:
    scheme = make("agc", 4, 2, stragglers=1, responses=2)
    assert isinstance(scheme, ErasureHead)
    groups = scheme.groups.draw(0)
    (a, b), (c, _) = groups.members(0), groups.members(1)
    scheme.assign(0)
    scheme.heard(Key(0, b, 0))
    assert not scheme.decodable(0)
    scheme.heard(Key(0, a, 0))
    decoding = scheme.decode(0)
    assert decoding.weights == {Key(0, b, 0): pytest.approx(6 / 5)}
    assert decoding.missing == pytest.approx((0.2**2 + 1) / 2)
    scheme.end_round(0)
    scheme.assign(1)
    d = scheme.groups.draw(1)
    scheme.heard(Key(1, d.members(0)[0], 0))
    scheme.heard(Key(1, d.members(1)[0], 0))
    assert scheme.decode(1).residual == 0.0
    assert set(scheme.decode(1).weights.values()) == {1.0}
    assert c not in (a, b)


def test_agc_stops_when_all_are_covered_and_with_r_equal_to_n_only_then() -> None:
    early = make("agc", 6, 1, stragglers=2, responses=4)
    patient = make("agc", 6, 1, stragglers=2, responses=6)
    assert patient.exact
    for scheme in (early, patient):
        assert isinstance(scheme, ErasureHead)
        scheme.assign(0)
        first, second = (scheme.groups.draw(0).members(q) for q in (0, 1))
        for worker in first:
            scheme.heard(Key(0, worker, 0))
        assert not scheme.decodable(0)
        scheme.heard(Key(0, second[0], 0))
        assert scheme.decodable(0)
        assert scheme.decode(0).residual == 0.0


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("fastest-k", {"responses": 5}, r"k \(responses\) = 5 does not fit 4 workers: use 1 <= k <= 4"),
        ("agc", {"stragglers": 1, "responses": 0}, r"r \(responses\) = 0 does not fit 4 workers"),
        ("agc", {"stragglers": 4, "responses": 1}, r"s \(stragglers\) = 4 does not fit 4 workers"),
        ("grouping", {"groups": 5}, r"G \(groups\) = 5 does not fit 4 workers"),
    ],
)
def test_what_does_not_fit_is_told(name: str, params: dict[str, int | str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(name, 4, 1, **params)


# --- shifted-exponential run times -----------------------------------------------------------------------------------

WORKERS, COPIES, RATE, RESPONSES, ROUNDS = 256, 4, 0.1, 200, 60


def harmonic(k: int) -> float:
    return math.fsum(1 / i for i in range(1, k + 1))


def formulas() -> dict[str, float]:
    """Mean round times; `agc` without its early stop, so an upper bound."""
    n, c, per_task = WORKERS, COPIES, WORKERS * RATE
    return {
        "uncoded": 1 / n + harmonic(n) / per_task,
        "fractional": c / n + harmonic(n // c) / per_task,
        "cyclic": c / n + c * (harmonic(n) - harmonic(c - 1)) / per_task,
        "agc": c / n + c * (harmonic(n) - harmonic(n - RESPONSES)) / per_task,
    }


def test_the_formulas_give_the_known_example() -> None:
    expected = {"uncoded": 0.2431, "fractional": 0.2009, "cyclic": 0.6861, "agc": 0.2520}
    assert formulas() == pytest.approx(expected, abs=5e-5)


def played(name: str, params: dict[str, int | str], copies: int) -> FloatArray:
    """Durations of ROUNDS rounds under shifted-exponential delays."""
    rng = np.random.default_rng(11)
    delays = copies / WORKERS + rng.exponential(copies / (WORKERS * RATE), size=(ROUNDS, WORKERS))
    return np.array(simulate(delays, name, params, SimulationOptions(jobs=ROUNDS, models=1)).durations)


@pytest.mark.parametrize(
    ("formula", "name", "params"),
    [
        ("uncoded", "uncoded", {}),
        ("fractional", "gc", {"s": COPIES - 1}),
        ("cyclic", "gc", {"s": COPIES - 1, "code": "cyclic"}),
    ],
)
def test_simulated_rounds_take_what_the_formula_says(formula: str, name: str, params: dict[str, int | str]) -> None:
    times = played(name, params, 1 if name == "uncoded" else COPIES)
    error = times.std() / math.sqrt(ROUNDS)
    assert abs(times.mean() - formulas()[formula]) < STANDARD_ERRORS * error


def test_agc_takes_at_most_its_formula_and_never_longer_than_the_exact_code() -> None:
    approximate = played("agc", {"s": COPIES - 1, "r": RESPONSES}, COPIES)
    exact_times = played("gc", {"s": COPIES - 1}, COPIES)
    assert (approximate <= exact_times + 1e-9).all()
    assert approximate.mean() <= formulas()["agc"]
    without_stop = np.sort(
        COPIES / WORKERS + np.random.default_rng(11).exponential(COPIES / (WORKERS * RATE), size=(ROUNDS, WORKERS)),
        axis=1,
    )[:, RESPONSES - 1]
    error = without_stop.std() / math.sqrt(ROUNDS)
    assert abs(without_stop.mean() - formulas()["agc"]) < STANDARD_ERRORS * error
    assert (approximate <= without_stop + 1e-9).all()
