"""Every row is used once: in an epoch, in a batch, in a pass, in a chunk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmux.lambda_worker.order import BatchOrder as WorkersOrder
from gradmux.lambda_worker.permutation import permuted
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.order import BatchOrder, chunk_bounds

KNOWN_OF_10, KNOWN_OF_MANY = [4, 0, 5, 2, 7, 1, 6, 3, 9, 8], [2065719, 3695746, 2158719, 1661592]
SIZES = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=60).map(lambda parts: np.array(parts) / sum(parts))


@given(rows=st.integers(1, 200), data=st.data(), seed=st.integers(0, 2**40), shuffle=st.booleans())
def test_an_epoch_uses_no_row_twice_and_drops_less_than_a_batch(
    rows: int, data: st.DataObject, seed: int, shuffle: bool
) -> None:
    order = BatchOrder(rows, data.draw(st.integers(1, rows)), seed, shuffle=shuffle)
    for first in (0, order.batches_per_epoch):
        used = np.concatenate([order.batch(step) for step in range(first, first + order.batches_per_epoch)])
        assert len(np.unique(used)) == len(used)
        assert 0 <= rows - len(used) < order.batch_size
        assert used.max() < rows


@given(sizes=SIZES, batch_size=st.integers(1, 500))
def test_chunks_share_out_the_batch(sizes: NDArray[np.float64], batch_size: int) -> None:
    order, bounds = BatchOrder(batch_size + 3, batch_size), chunk_bounds(sizes, batch_size)
    chunks = order.chunks(4, bounds)
    assert len(chunks) == len(sizes)
    assert sorted(np.concatenate(chunks).tolist()) == sorted(order.batch(4).tolist())
    for chunk, fraction in zip(chunks, sizes, strict=True):
        assert abs(len(chunk) - fraction * batch_size) <= 1.0 + 1e-9
        assert (np.diff(chunk.astype(int)) > 0).all()


def test_by_hand() -> None:
    order = BatchOrder(7, 6, shuffle=False)
    bounds = chunk_bounds(np.array([0.5, 0.25, 0.25]), 6)
    assert bounds == (0, 3, 5, 6)
    assert [chunk.tolist() for chunk in order.chunks(9, bounds)] == [[0, 1, 2], [3, 4], [5]]


def test_more_chunks_than_rows_leave_some_empty() -> None:
    chunks = BatchOrder(3, 3).chunks(0, chunk_bounds(np.full(8, 1 / 8), 3))
    assert sum(len(chunk) == 0 for chunk in chunks) == 5


def test_the_order_is_this_one_for_ever() -> None:
    """Known answers: a change here would give resumed runs other rows."""
    order = BatchOrder(10, 5, seed=3)
    known = [[0, 4, 9, 7, 1], [5, 6, 3, 8, 2], [0, 6, 2, 1, 3]]
    assert [order.batch(step).tolist() for step in range(3)] == known


def test_seeds_and_epochs_give_other_orders() -> None:
    order = BatchOrder(1000, 1000, seed=1)
    assert (order.batch(0) == order.batch(1)).mean() < 0.02
    assert (order.batch(0) == BatchOrder(1000, 1000, seed=2).batch(0)).mean() < 0.02
    np.testing.assert_array_equal(order.batch(7), BatchOrder(1000, 1000, seed=1).batch(7))


def test_a_batch_must_fit_the_data() -> None:
    with pytest.raises(ConfigError, match="batch_size = 11 is more than the 10 rows"):
        BatchOrder(10, 11)


@given(batch_size=st.integers(1, 200), data=st.data())
def test_passes_share_out_the_batch_and_differ_by_a_row_at_most(batch_size: int, data: st.DataObject) -> None:
    passes = data.draw(st.integers(1, batch_size))
    order = BatchOrder(batch_size + 3, batch_size, seed=5)
    cut = [order.rows_of(4, passes, index, index + 1) for index in range(passes)]
    sizes = [len(rows) for rows in cut]
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(cut).tolist()) == sorted(order.batch(4).tolist())
    assert all((np.diff(rows.astype(int)) > 0).all() for rows in cut)
    first = data.draw(st.integers(0, passes - 1))
    end = data.draw(st.integers(first + 1, passes))
    together = order.rows_of(4, passes, first, end)
    assert together.tolist() == sorted(np.concatenate(cut[first:end]).tolist())


def test_passes_by_hand() -> None:
    order = BatchOrder(7, 7, shuffle=False)
    assert [order.rows_of(0, 3, index, index + 1).tolist() for index in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]


def test_the_worker_finds_the_same_rows_from_a_few_numbers() -> None:
    client, worker = BatchOrder(50, 20, seed=9), WorkersOrder(50, 20, 9)
    for step in range(5):
        np.testing.assert_array_equal(worker.rows_of(step, 6, 1, 4), client.rows_of(step, 6, 1, 4))


# --- very many rows ------------------------------------------------------------------------------------------------


@given(count=st.integers(1, 3000), seed=st.integers(0, 2**63), epoch=st.integers(0, 9))
def test_a_permutation_that_is_not_kept_has_every_number_once(count: int, seed: int, epoch: int) -> None:
    found = permuted(np.arange(count), count, (seed, epoch))
    assert sorted(found.tolist()) == list(range(count))


@given(count=st.integers(2**22, 2**32), data=st.data())
def test_any_places_of_it_can_be_asked_for(count: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=50, unique=True)))
    found = permuted(places, count, (7, 0))
    assert len(set(found.tolist())) == len(places)
    assert 0 <= found.min() <= found.max() < count
    assert found[-1:].tolist() == permuted(places[-1:], count, (7, 0)).tolist()


def test_it_is_this_one_for_ever() -> None:
    """Known answers: a change here would give resumed runs other rows."""
    assert permuted(np.arange(10), 10, (3, 0)).tolist() == KNOWN_OF_10
    assert permuted(np.arange(4), 5_000_000, (3, 1)).tolist() == KNOWN_OF_MANY


def test_it_looks_random() -> None:
    """Where numbers go, which are neighbours, and how bytes are spread: as of random ones, within five sigma."""
    count = 6_000_000
    found = permuted(np.arange(60_000), count, (1, 2))
    sixteenths = np.bincount(found * 16 // count, minlength=16)
    assert abs(sixteenths - 60_000 / 16).max() < 5 * np.sqrt(60_000 / 16)
    assert abs((np.diff(found) > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(60_000)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 5 / np.sqrt(60_000)
    assert abs(np.corrcoef(np.arange(60_000), found)[0, 1]) < 5 / np.sqrt(60_000)
    low = np.bincount(found % 16, minlength=16)
    assert abs(low - 60_000 / 16).max() < 5 * np.sqrt(60_000 / 16)


def test_an_order_of_very_many_rows_is_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmux.lambda_worker.order.KEPT_ROWS", 100)
    order, worker = BatchOrder(1000, 90, seed=4), WorkersOrder(1000, 90, 4)
    for epoch in (0, 1):
        used = np.concatenate([order.batch(step) for step in range(11 * epoch, 11 * epoch + 11)])
        assert len(np.unique(used)) == 990
    assert order.batch(0).tolist() != order.batch(11).tolist()
    np.testing.assert_array_equal(worker.rows_of(13, 9, 2, 5), order.rows_of(13, 9, 2, 5))


def test_rows_that_are_drawn_are_the_same_whichever_batch_is_asked_for_first() -> None:
    """By hand: 10 rows, of which the third is drawn half of the time; one draw for each place of an epoch."""
    sampling = np.array([1.0, 1, 10, 1, 1, 1, 1, 1, 1, 2])
    order = BatchOrder(10, 5, seed=3, sampling=lambda: sampling)
    bits = np.random.PCG64(np.random.SeedSequence([3, 1])).random_raw(10)
    drawn = np.searchsorted(np.cumsum(sampling / 20), (bits >> np.uint64(11)) * 2.0**-53, side="right")
    assert order.batch(3).tolist() == drawn[5:].tolist()
    assert order.batch(2).tolist() == drawn[:5].tolist()
