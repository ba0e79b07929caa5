"""The codes by themselves: which answers suffice, exact weights, structured against dense solves, examples by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError, GradmuxError
from gradmux.orchestrator.schemes.codes import Code, FractionalCode, Reception, cyclic_code, dft_code, make_code
from gradmux.orchestrator.schemes.codes.cyclic import encoding_matrix, parity
from gradmux.orchestrator.schemes.scheme import FloatArray
from tests.orchestrator.schemes.playing import mask


def rows_of(code: Code, word_parts: tuple[int, ...] = (0,)) -> FloatArray:
    """(workers, chunks) the encoding matrix that the rows of a codeword make up."""
    word, matrix = code.draw(*word_parts), np.zeros((code.workers, code.chunks))
    for worker in range(code.workers):
        chunks, coefficients = word.row(worker)
        matrix[worker, list(chunks)] = coefficients
    return matrix


def received(code: Code, workers: list[int]) -> Reception:
    """A reception of codeword 0 with the answers of `workers`."""
    reception = code.draw(0).reception()
    for worker in workers:
        reception.add(worker)
    return reception


@st.composite
def codes(draw: st.DrawFn, max_workers: int = 14) -> Code:
    """Any code, small."""
    name = draw(st.sampled_from(["fractional", "cyclic", "dft"]))
    workers = draw(st.integers(1, max_workers))
    tolerance = draw(st.integers(0, workers - 1))
    if name == "dft" and tolerance and (workers - tolerance) % 2 == 0:
        tolerance -= 1
    return make_code(name, workers, tolerance, draw(st.integers(0, 5)))


# --- every code ------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(codes(), st.data())
def test_any_s_workers_may_be_missing(code: Code, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(code.workers)))
    answered = order[: code.workers - code.tolerance]
    reception = received(code, answered)
    assert reception.complete
    assert code.draw(0).covers(mask(code.workers, answered))
    found = reception.decode()
    assert set(found.weights) <= set(answered)
    weights = np.array([found.weights.get(worker, 0.0) for worker in range(code.workers)])
    rows = rows_of(code)
    noise = max(1.0, found.amplification)
    assert np.abs(weights @ rows - 1.0).max() <= 1e-12 * noise
    assert found.residual <= 1e-12 * noise
    amplification = np.sqrt(np.sum(weights**2 * np.sum(rows**2, axis=1)) / code.workers)
    assert found.amplification == pytest.approx(amplification, rel=1e-9)


@given(codes(), st.data())
def test_complete_means_that_the_rows_span_the_ones(code: Code, data: st.DataObject) -> None:
    """Exactly that, but for dft, where some sets of fewer than n - s rows happen to do (n = 4, s = 1: rows 0 and 2)."""
    answered = sorted(data.draw(st.sets(st.integers(0, code.workers - 1))))
    reception = received(code, answered)
    assert code.draw(0).covers(mask(code.workers, answered)) == reception.complete
    if reception.complete:
        assert reception.estimate() == reception.decode()
    elif code.name != "dft":
        assert reception.estimate().missing > 1e-9


@given(codes(), st.data())
def test_needed_is_the_least_number_of_helpful_workers_that_completes(code: Code, data: st.DataObject) -> None:
    answered = sorted(data.draw(st.sets(st.integers(0, code.workers - 1))))
    reception = received(code, answered)
    helpful = reception.helpful()
    assert set(helpful).isdisjoint(answered)
    assert (reception.needed == 0) == reception.complete == (not helpful)
    with_fewer = mask(code.workers, answered + helpful[: max(0, reception.needed - 1)])
    with_all = mask(code.workers, answered + helpful[: reception.needed])
    assert code.draw(0).covers(with_all)
    assert reception.complete or not code.draw(0).covers(with_fewer)


@given(codes(), st.data())
def test_weights_come_in_an_order_that_arrival_does_not_touch(code: Code, data: st.DataObject) -> None:
    answered = data.draw(st.permutations(range(code.workers)))
    other = data.draw(st.permutations(range(code.workers)))
    chunk_of = [min(code.draw(0).row(worker)[0]) for worker in range(code.workers)]
    orders = [list(received(code, list(order)).estimate().weights) for order in (answered, other)]
    if code.name == "fractional":
        assert [[chunk_of[worker] for worker in order] for order in orders] == [list(range(code.chunks))] * 2
    else:
        assert orders == [list(range(code.workers))] * 2


@given(codes())
def test_load_is_what_the_rows_hold(code: Code) -> None:
    matrix = rows_of(code)
    assert np.count_nonzero(matrix, axis=1).max() / code.chunks == pytest.approx(code.load)
    if code.name == "fractional":
        assert code.load == 1 / (code.workers // (code.tolerance + 1))
    else:
        assert code.load == (code.tolerance + 1) / code.workers
        supports = [{(worker + k) % code.workers for k in range(code.tolerance + 1)} for worker in range(code.workers)]
        assert all(set(np.flatnonzero(row)) <= support for row, support in zip(matrix, supports, strict=True))


# --- fractional ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.data())
def test_fractional_groups_differ_by_one_and_hold_more_than_s(workers: int, data: st.DataObject) -> None:
    tolerance = data.draw(st.integers(0, workers - 1))
    code = FractionalCode(workers, tolerance)
    word = code.draw(data.draw(st.integers(0, 10)))
    sizes = [len(word.members(chunk)) for chunk in range(code.chunks)]
    assert sum(sizes) == workers
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= tolerance + 1


def test_fractional_groups_are_drawn_by_seed_job_and_part() -> None:
    named = [(seed, job, part) for seed in (0, 1) for job in (0, 1) for part in (0, 1)]
    groups = [FractionalCode(24, 3, seed).draw(job, part).group for seed, job, part in named]
    assert len({tuple(group) for group in groups}) == len(groups)
    assert FractionalCode(24, 3, 1).draw(1, 1).group == groups[-1]
    assert FractionalCode(5, 1, redraw=False).draw(7).group == [0, 0, 0, 1, 1]


def test_fractional_takes_the_first_answer_of_each_group() -> None:
    code = FractionalCode(5, 1, redraw=False)
    reception = received(code, [4])
    assert reception.helpful() == [0, 1, 2]
    assert not reception.add(3)
    assert reception.add(1)
    assert not reception.add(0)
    assert reception.decode().weights == {1: 1.0, 4: 1.0}
    assert list(reception.decode().weights) == [1, 4]


def test_fractional_at_256_survives_far_more_than_s() -> None:
    """SCHEMES: n = 256, s = 15 survives 120 random stragglers with probability 0.99995."""
    code, generator = FractionalCode(256, 15), np.random.default_rng(0)
    word = code.draw(0)
    covered = [word.covers(mask(256, generator.permutation(256)[120:])) for _ in range(500)]
    assert sum(covered) >= 498


# --- cyclic and dft --------------------------------------------------------------------------------------------------


@given(st.integers(2, 20), st.data())
def test_cyclic_rows_lie_in_the_null_space_of_h(workers: int, data: st.DataObject) -> None:
    tolerance = data.draw(st.integers(1, workers - 1))
    check = parity(workers, tolerance, seed=data.draw(st.integers(0, 9)))
    matrix = encoding_matrix(check)
    assert np.abs(check.sum(axis=1)).max() <= 1e-12 * workers
    assert np.diag(matrix).tolist() == [1.0] * workers
    lengths = np.linalg.norm(check) * np.linalg.norm(matrix, axis=1)
    assert (np.linalg.norm(check @ matrix.T, axis=0) <= 1e-12 * lengths).all()


@settings(max_examples=40)
@given(st.integers(4, 24), st.data())
def test_the_structured_solve_has_the_least_amplification(workers: int, data: st.DataObject) -> None:
    """Same weights as a dense least-norm solve over rows of length 1."""
    tolerance = data.draw(st.integers(1, 3))
    code = cyclic_code(workers, tolerance)
    order = data.draw(st.permutations(range(workers)))
    answered = sorted(order[: data.draw(st.integers(workers - tolerance, workers))])
    found = received(code, answered).decode()
    matrix = rows_of(code)[answered]
    lengths = np.linalg.norm(matrix, axis=1)
    dense = np.linalg.lstsq((matrix / lengths[:, None]).T, np.ones(workers), rcond=1e-13)[0] / lengths
    assert list(found.weights.values()) == pytest.approx(dense, rel=1e-6, abs=1e-6 * found.amplification)


def test_cyclic_at_256_decodes_to_the_precision_of_float64() -> None:
    code, generator = cyclic_code(256, 15), np.random.default_rng(1)
    for _ in range(20):
        found = received(code, generator.permutation(256)[15:].tolist()).decode()
        assert found.residual <= 1e-12 * found.amplification


def test_cyclic_by_hand() -> None:
    assert encoding_matrix(np.array([[1.0, 1.0, -2.0]])).tolist() == [[1, -1, 0], [0, 1, 0.5], [2, 0, 1]]


def test_dft_by_hand() -> None:
    code = dft_code(3, 2)
    assert rows_of(code) == pytest.approx(np.ones((3, 3)))
    assert received(code, [2]).decode().weights == {2: pytest.approx(1.0)}


@pytest.mark.parametrize(("workers", "tolerance"), [(4, 2), (5, 1), (6, 4), (7, 3)])
def test_dft_is_real_only_when_n_minus_s_is_odd(workers: int, tolerance: int) -> None:
    with pytest.raises(ConfigError, match=rf"n - s must be odd: use s = {tolerance - 1} or {tolerance + 1}"):
        dft_code(workers, tolerance)


def test_one_answer_too_few_never_decodes_a_cyclic_code() -> None:
    for code in (cyclic_code(6, 2), dft_code(7, 2)):
        for missing in combinations(range(code.workers), 3):
            reception = received(code, [worker for worker in range(code.workers) if worker not in missing])
            assert not reception.complete
            assert reception.estimate().missing > 1e-6
            with pytest.raises(AssertionError):
                reception.decode()


def test_a_decode_that_rounding_has_spoilt_is_refused() -> None:
    """A dft code with many stragglers has coefficients beyond float64."""
    code = dft_code(101, 60)
    with pytest.raises(GradmuxError, match="lost the gradient to rounding"):
        received(code, list(range(41))).decode()
