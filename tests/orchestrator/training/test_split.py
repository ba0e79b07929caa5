"""A validation split: which rows, that both parts have every row once, and that they are read as they lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.split import BLOCK_ROWS, DRAWN_ROWS, PURPOSE, RowSet, split

SIZES = st.one_of(st.integers(2, 300), st.sampled_from([BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS - 5]))


@given(rows=SIZES, share=st.floats(0.01, 0.99), seed=st.integers(0, 2**40))
def test_the_rows_with_the_least_random_numbers_judge(rows: int, share: float, seed: int) -> None:
    count = round(share * rows)
    if not 0 < count < rows:
        with pytest.raises(ConfigError, match="leaves none"):
            split(Dataset(np.arange(rows)), share, seed)
        return
    train, judged = split(Dataset(np.arange(rows)), share, seed)
    order = np.argsort(np.random.PCG64(np.random.SeedSequence([seed, PURPOSE])).random_raw(rows), kind="stable")
    assert judged.x.tolist() == sorted(order[:count].tolist())
    assert train.x.tolist() == sorted(order[count:].tolist())


def test_of_many_rows_a_bit_each_is_kept() -> None:
    rows = 3 * DRAWN_ROWS + 11
    train, judged = split(Dataset(np.arange(rows)), 0.1, 5)
    order = np.argsort(np.random.PCG64(np.random.SeedSequence([5, PURPOSE])).random_raw(rows), kind="stable")
    assert judged.x.tolist() == sorted(order[: judged.rows].tolist())
    assert train.rows + judged.rows == rows


@given(chosen=st.lists(st.booleans(), min_size=1, max_size=200), spread=st.integers(1, 90), data=st.data())
def test_places_of_a_set_are_its_rows(chosen: list[bool], spread: int, data: st.DataObject) -> None:
    """Spread over several blocks, some of them empty."""
    kept = np.zeros(len(chosen) * spread, bool)
    kept[::spread] = chosen
    rows, numbers = RowSet(np.packbits(kept)), np.flatnonzero(kept)
    assert len(rows) == len(numbers)
    if len(numbers):
        places = np.array(data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=20)), np.int64)
        assert rows.numbers(places).tolist() == numbers[places].tolist()
