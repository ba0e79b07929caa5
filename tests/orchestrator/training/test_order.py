"""Every row is used once: in an epoch, in a batch, in a pass, in a chunk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmux.lambda_worker.order import BatchOrder as WorkersOrder
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.order import BatchOrder, chunk_bounds

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
