"""What is done to rows before a model sees them: the same for every copy, whoever makes it; and rows that are drawn."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import Tensor

from gradmux.lambda_worker.cache import DiskCache
from gradmux.lambda_worker.contract import ContractError, Rows
from gradmux.lambda_worker.data import Dataset
from gradmux.lambda_worker.layout import encode_manifest, parse_manifest
from gradmux.lambda_worker.objects import MemoryObjects
from gradmux.lambda_worker.order import BatchOrder
from gradmux.lambda_worker.transforms import PLAIN, Preparation, TransformError, preparation_of
from tests.lambda_worker import workbench

ROWS = 20
IMAGES = np.random.default_rng(3).integers(0, 256, (ROWS, 3, 4, 5)).astype("u1")
CLASSES = np.arange(ROWS) % 4


def noisy(x: Tensor) -> Tensor:
    """Draws from all three."""
    shift = torch.randint(0, 9, ()) + random.randint(0, 9) + np.random.randint(0, 9)
    return x.add_(shift.to(torch.uint8))


def flipped(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.flip(-1), y + 100


def dataset(folder: Path, preparation: Preparation, **arrays: Any) -> Dataset:
    manifest, objects = workbench.stored({"x": IMAGES, "y": CLASSES, **arrays}, 7)
    extra = {"prepare": preparation.described()}
    again = parse_manifest(encode_manifest(type(manifest)(manifest.layout, manifest.digests, manifest.place, extra)))
    store = MemoryObjects()
    store.objects.update(objects)
    return Dataset(again, store, DiskCache(folder, 10**7))


def test_copies_of_a_row_are_the_same_and_epochs_are_not(tmp_path: Path) -> None:
    data = dataset(tmp_path, Preparation(code=cloudpickle.dumps(noisy), seed=5))
    torch.manual_seed(1)
    whole: Any = data.read(Rows(0, ROWS), epoch=3)[0]
    again: Any = data.read(Rows.of([7, 2, 7]), epoch=3)[0]
    assert torch.equal(again, whole[[7, 2, 7]])
    assert not torch.equal(whole, torch.from_numpy(IMAGES))
    later: Any = data.read(Rows(0, ROWS), epoch=4)[0]
    assert not torch.equal(later, whole)
    other: Any = dataset(tmp_path, Preparation(code=cloudpickle.dumps(noisy), seed=6)).read(Rows(0, ROWS), epoch=3)[0]
    assert not torch.equal(other, whole)


def test_nothing_outside_is_drawn_from_by_a_transform(tmp_path: Path) -> None:
    data = dataset(tmp_path, Preparation(code=cloudpickle.dumps(noisy)))
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    data.read(Rows(0, 4))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # type: ignore[index, union-attr]


def test_bytes_are_scaled_and_other_inputs_are_not(tmp_path: Path) -> None:
    other = np.linspace(0, 1, ROWS).astype("f4")
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    manifest, objects = workbench.stored({"x.a": IMAGES, "x.b": other, "y": CLASSES})
    store = MemoryObjects()
    store.objects.update(objects)
    extra = {"prepare": Preparation(255.0, mean, std).described()}
    data = Dataset(
        type(manifest)(manifest.layout, manifest.digests, manifest.place, extra), store, DiskCache(tmp_path, 1)
    )
    inputs: Any = data.read(Rows(0, ROWS))[0]
    expected = (torch.from_numpy(IMAGES) / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(inputs["a"], expected)
    assert torch.equal(inputs["b"], torch.from_numpy(other))


def test_without_bytes_floats_are_scaled(tmp_path: Path) -> None:
    found: Any = dataset(tmp_path, Preparation(2.0, (1.0,)), x=np.full((ROWS, 2), 6.0)).read(Rows(0, 2), torch.float64)[
        0
    ]
    assert found.tolist() == [[2.0, 2.0]] * 2


def test_a_transform_may_change_the_target_as_well(tmp_path: Path) -> None:
    data = dataset(tmp_path, Preparation(code=cloudpickle.dumps(flipped)))
    x, y = data.read(Rows(2, 5))
    assert torch.equal(x, torch.from_numpy(IMAGES[2:5, :, :, ::-1].copy()))  # type: ignore[arg-type]
    assert y.tolist() == (CLASSES[2:5] + 100).tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x[:, : 1 + int(x[0, 0, 0]) % 2], "rows do not fit together"),
        (lambda x: 1 / 0, "transform, row 0: ZeroDivisionError"),
    ],
)
def test_a_transform_that_fails_is_told(tmp_path: Path, function: Any, words: str) -> None:
    with pytest.raises(TransformError, match=words):
        dataset(tmp_path, Preparation(code=cloudpickle.dumps(function))).read(Rows(0, ROWS))


def test_numbers_for_other_channels_are_told(tmp_path: Path) -> None:
    with pytest.raises(TransformError, match=r"2 numbers, but a row is \(3, 4, 5\)"):
        dataset(tmp_path, Preparation(mean=(0.1, 0.2))).read(Rows(0, 2))


@pytest.mark.parametrize("made", [PLAIN, Preparation(2.0, (1.0,), (3.0, 4.0), b"code", 9), Preparation(code="a:b")])
def test_what_is_done_to_rows_travels(made: Preparation) -> None:
    assert preparation_of(made.described()) == made


@pytest.mark.parametrize("described", [{"scale": 1}, {"scale": "x", "mean": [], "std": [], "code": None, "seed": 0}])
def test_malformed_preparations(described: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=r"manifest\.extra\.prepare"):
        preparation_of(described)


# --- rows that are drawn -------------------------------------------------------------------------------------------


def test_rows_are_drawn_in_proportion_to_their_numbers(tmp_path: Path) -> None:
    numbers = np.array([0.0, 1.0, 3.0, 0.0, 4.0, 0.0] * 500, dtype="f4")
    order = BatchOrder(len(numbers), 300, seed=2, sampling=lambda: numbers.astype(np.float64))
    drawn = np.concatenate([order.batch(step) for step in range(10)])
    counts = Counter((drawn % 6).tolist())
    assert set(counts) == {1, 2, 4}
    expected = {place: len(drawn) * share for place, share in ((1, 1 / 8), (2, 3 / 8), (4, 4 / 8))}
    squares = sum((counts[place] - each) ** 2 / each for place, each in expected.items())
    assert squares < 13.8, "chi-squared with 2 degrees of freedom: once in 1,000 seeds"
    assert not np.array_equal(order.batch(0), order.batch(10)), "each epoch draws anew"
    again = BatchOrder(len(numbers), 300, seed=2, sampling=lambda: numbers.astype(np.float64))
    assert np.array_equal(again.batch(13), order.batch(13))
    rows = order.rows_of(0, 4, 0, 4)
    assert np.array_equal(np.sort(order.batch(0)), rows)
    assert Rows.ascending(np.array([3, 3, 5], dtype="u4")).indices().tolist() == [3, 3, 5]


def test_workers_read_the_numbers_from_the_data_set(tmp_path: Path) -> None:
    numbers = np.linspace(0, 1, ROWS).astype("f4")
    data = dataset(tmp_path, PLAIN, p=numbers)
    assert data.sampling() is not None
    np.testing.assert_array_equal(data.sampling(), numbers.astype("f8"))
    assert isinstance(data.read(Rows(0, 3))[0], Tensor)
    assert dataset(tmp_path, PLAIN).sampling() is None
