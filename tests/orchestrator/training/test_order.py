"""Every row is used once: in a pass, in a batch, in a chunk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.order import BatchOrder, chunk_bounds

SIZES = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=60).map(lambda parts: np.array(parts) / sum(parts))


@given(rows=st.integers(1, 200), data=st.data(), seed=st.integers(0, 2**40), shuffle=st.booleans())
def test_a_pass_uses_no_row_twice_and_drops_less_than_a_batch(
    rows: int, data: st.DataObject, seed: int, shuffle: bool
) -> None:
    order = BatchOrder(rows, data.draw(st.integers(1, rows)), seed, shuffle=shuffle)
    for first in (0, order.batches_per_pass):
        used = np.concatenate([order.batch(step) for step in range(first, first + order.batches_per_pass)])
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
    assert bounds == (0, 3, 4, 6)
    assert [chunk.tolist() for chunk in order.chunks(9, bounds)] == [[0, 1, 2], [3], [4, 5]]


def test_more_chunks_than_rows_leave_some_empty() -> None:
    chunks = BatchOrder(3, 3).chunks(0, chunk_bounds(np.full(8, 1 / 8), 3))
    assert sum(len(chunk) == 0 for chunk in chunks) == 5


def test_the_order_is_this_one_for_ever() -> None:
    """Known answers: a change here would give resumed runs other rows."""
    order = BatchOrder(10, 5, seed=3)
    known = [[0, 4, 9, 7, 1], [5, 6, 3, 8, 2], [0, 6, 2, 1, 3]]
    assert [order.batch(step).tolist() for step in range(3)] == known


def test_seeds_and_passes_give_other_orders() -> None:
    order = BatchOrder(1000, 1000, seed=1)
    assert (order.batch(0) == order.batch(1)).mean() < 0.02
    assert (order.batch(0) == BatchOrder(1000, 1000, seed=2).batch(0)).mean() < 0.02
    np.testing.assert_array_equal(order.batch(7), BatchOrder(1000, 1000, seed=1).batch(7))


def test_a_batch_must_fit_the_data() -> None:
    with pytest.raises(ConfigError, match="batch_size = 11 is more than the 10 rows"):
        BatchOrder(10, 11)
