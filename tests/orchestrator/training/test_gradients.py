"""Combining: the right sum, the same bits in any order, and errors that say what is wrong."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.training import gradients
from gradmux.orchestrator.training.gradients import CodedResult, Term, combine, squared_distance
from gradmux.orchestrator.training.streamed_sums import Combiner


def make_terms(
    count: int, size: int, dtype: str = "float32", weights: tuple[float, ...] = (1.0,), seed: int = 0
) -> list[Term]:
    generator = np.random.default_rng(seed)

    def result(index: int) -> CodedResult:
        """Every third one holds buffers: of the others they are zeros, which do not travel."""
        gradient, sums = generator.standard_normal(size).astype(dtype), generator.standard_normal(5)
        return CodedResult(gradient, sums, generator.standard_normal(3 if index % 3 == 0 else 0))

    return [(result(index), weights[index % len(weights)]) for index in range(count)]


def added(terms: list[Term], order: list[int] | None = None) -> CodedResult:
    """What a combiner makes of copies of the terms, added in this order."""
    combiner = Combiner(len(terms))
    for position in order or range(len(terms)):
        assert not combiner.complete
        result, weight = terms[position]
        combiner.add(position, CodedResult(result.gradient.copy(), result.sums, result.buffers), weight)
    return combiner.total()


def exact(terms: list[Term]) -> tuple[list[float], list[float]]:
    """The correctly rounded float64 sums, element by element."""
    gradients = [[weight * float(x) for x in result.gradient] for result, weight in terms]
    sums = [[weight * float(x) for x in result.sums] for result, weight in terms]
    return [math.fsum(column) for column in zip(*gradients, strict=True)], [
        math.fsum(column) for column in zip(*sums, strict=True)
    ]


@given(count=st.integers(1, 40), size=st.integers(0, 9), seed=st.integers(0, 9))
def test_the_weighted_sum(count: int, size: int, seed: int) -> None:
    terms = make_terms(count, size, "float64", (1.0, -2.5, 0.5), seed)
    total = combine(terms)
    gradient, sums = exact(terms)
    np.testing.assert_allclose(total.gradient, gradient, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(total.sums, sums, rtol=1e-12, atol=1e-12)
    assert total.gradient.dtype == np.float64
    held = [result.buffers for result, _ in terms if result.buffers.size]
    np.testing.assert_array_equal(total.buffers, max(held, key=lambda section: abs(section[0])))


@given(
    count=st.integers(1, 300),
    weights=st.sampled_from([(1.0,), (1.0, 0.5, -3.0), (1.0, 0.0, 1.0)]),
    order=st.randoms(use_true_random=False),
)
def test_arrival_order_changes_no_bit(count: int, weights: tuple[float, ...], order: random.Random) -> None:
    terms = make_terms(count, 7, weights=weights)
    arrivals = list(range(count))
    order.shuffle(arrivals)
    streamed, in_order = added(terms, arrivals), added(terms)
    np.testing.assert_array_equal(streamed.gradient, in_order.gradient)
    np.testing.assert_array_equal(streamed.sums, in_order.sums)
    np.testing.assert_array_equal(streamed.buffers, in_order.buffers)
    if 0.0 not in weights:
        np.testing.assert_array_equal(streamed.gradient, combine(terms).gradient)
        np.testing.assert_array_equal(streamed.sums, combine(terms).sums)
        np.testing.assert_array_equal(streamed.buffers, combine(terms).buffers)


def test_a_vector_of_many_blocks_has_the_bits_of_the_tree() -> None:
    """Blocks, threads and scratch memory are for speed alone."""
    size = 3 * gradients.BLOCK_ELEMENTS + 17
    terms = make_terms(11, size, weights=(1.0, 1.0, 2.0))
    np.testing.assert_array_equal(combine(terms).gradient, added(terms).gradient)


def test_256_results_round_less_than_a_running_sum() -> None:
    terms = make_terms(256, 20_000)
    truth = np.sum([result.gradient.astype(np.float64) for result, _ in terms], axis=0)
    running = np.zeros(20_000, np.float32)
    for result, _ in terms:
        running += result.gradient
    error = np.linalg.norm(combine(terms).gradient - truth) / np.linalg.norm(truth)
    assert error < 1.5e-7
    assert error < 0.5 * np.linalg.norm(running - truth) / np.linalg.norm(truth)


def test_combine_leaves_its_terms_alone_and_streaming_what_is_read_only() -> None:
    terms = make_terms(11, 6, weights=(1.0, 2.0))
    for result, _ in terms[::2]:
        result.gradient.flags.writeable = False
    before = [result.gradient.copy() for result, _ in terms]
    totals = [combine(terms), combine(terms[:1])]
    for (result, _), unchanged in zip(terms, before, strict=True):
        np.testing.assert_array_equal(result.gradient, unchanged)
    combiner = Combiner(11)
    for position, term in enumerate(terms):
        combiner.add(position, *term)
    for total in [*totals, combiner.total()]:
        total.gradient[:] = 7.0
    for (result, _), unchanged in zip(terms[::2], before[::2], strict=True):
        np.testing.assert_array_equal(result.gradient, unchanged)


def test_canonical_order_keeps_few_vectors_and_random_order_about_three_quarters() -> None:
    terms = make_terms(256, 1)

    def most_held(order: list[int]) -> int:
        combiner, most = Combiner(256), 0
        for position in order:
            combiner.add(position, *terms[position])
            most = max(most, combiner.held)
        return most

    shuffled = list(range(256))
    random.Random(1).shuffle(shuffled)
    assert most_held(list(range(256))) <= 31
    assert most_held(shuffled) <= 0.82 * 256


def test_terms_of_weight_zero_do_not_count_even_when_not_finite() -> None:
    good, bad = make_terms(2, 3)
    bad[0].gradient[:] = np.nan
    np.testing.assert_array_equal(combine([good, (bad[0], 0.0)]).gradient, good[0].gradient)


@pytest.mark.parametrize("terms", [[], [(make_terms(1, 3)[0][0], 0.0)]])
def test_nothing_to_combine(terms: list[Term]) -> None:
    with pytest.raises(ValueError, match="nothing to combine"):
        combine(terms)
    combiner = Combiner(1)
    combiner.skip(0)
    with pytest.raises(ValueError, match="nothing to combine"):
        combiner.total()


def test_results_that_do_not_fit_together() -> None:
    long, short = make_terms(1, 4)[0], make_terms(1, 3)[0]
    with pytest.raises(ValueError, match="3 float32 and 5 sums, 4 float32 and 5 sums"):
        combine([long, short])
    combiner = Combiner(2)
    combiner.add(0, *long)
    with pytest.raises(ValueError, match="must be alike"):
        combiner.add(1, *make_terms(1, 4, "float64")[0])


def test_distance_of_gradients() -> None:
    one, other = (CodedResult(np.array(values, np.float32), np.zeros(1)) for values in ([1, 2, 3], [1, 4, 0]))
    assert squared_distance(one, other) == 13.0


def test_whole_numbers_in_buffers_survive_a_decode_that_amplifies() -> None:
    """Weights of either sign whose sum is 1: sums of large whole numbers would end elsewhere."""
    values, coefficients = np.array([1.0, 2.0**51 + 1.0]), (0.3, -7.7, 0.01)
    terms = [(CodedResult(np.ones(2), np.ones(3), c * values), 1.0 / (3 * c)) for c in coefficients]
    for total in (combine(terms), added(terms)):
        assert round(total.buffers[1] / total.buffers[0]) == 2**51 + 1


def test_buffers_of_different_models_are_not_added() -> None:
    terms = [(CodedResult(np.ones(2, np.float32), np.ones(3), np.ones(size)), 1.0) for size in (2, 3)]
    with pytest.raises(ValueError, match=r"buffers of \[2, 3\] elements"):
        combine(terms)
