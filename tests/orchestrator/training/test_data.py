"""Data sets from everywhere a job may name, the errors of each, and what workers are given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import load_digits

from gradmux.lambda_worker.layout import parse_manifest
from gradmux.lambda_worker.shards import Shards
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.data import Dataset, all_digits, as_dataset, load_dataset, put_dataset

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 2])


def assert_same(dataset: Dataset, x: Any = X, y: Any = Y) -> None:
    np.testing.assert_array_equal(dataset.x, x)
    np.testing.assert_array_equal(dataset.y, y)


def write_npz(folder: Path) -> Path:
    np.savez(folder / "d.npz", x=X, y=Y)
    return folder / "d.npz"


def write_npy(folder: Path) -> Path:
    np.save(folder / "X_train.npy", X)
    np.save(folder / "y_train.npy", Y)
    return folder / "X_train.npy"


def write_parquet_columns(folder: Path) -> Path:
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "label": Y, "c": X[:, 2]}), folder / "d.parquet")
    return folder / "d.parquet"


def write_parquet_lists(folder: Path) -> Path:
    pq.write_table(pa.table({"x": pa.array(list(X)), "y": Y, "id": [9, 8, 7, 6]}), folder / "l.parquet")
    return folder / "l.parquet"


WRITERS = [write_npz, write_npy, write_parquet_columns, write_parquet_lists]


@pytest.mark.parametrize("write", WRITERS)
def test_files(write: Callable[[Path], Path], tmp_path: Path) -> None:
    assert_same(load_dataset(str(write(tmp_path))))


@pytest.mark.parametrize("write", WRITERS)
def test_folders_of_one_file_or_pair(write: Callable[[Path], Path], tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "README.txt").write_text("not data")
    assert_same(load_dataset(str(tmp_path)))


def test_folders_join_their_files_by_name(tmp_path: Path) -> None:
    for name, part in (("b", slice(2, 4)), ("a", slice(0, 2))):
        np.savez(tmp_path / f"{name}.npz", x=X[part], y=Y[part])
    assert_same(load_dataset(str(tmp_path)))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("as_folder", [True, False])
def test_s3(write: Callable[[Path], Path], as_folder: bool, tmp_path: Path) -> None:
    path, buckets = write(tmp_path), {"lake": MemoryStore()}
    for file in tmp_path.iterdir():
        buckets["lake"].put(f"set/{file.name}", file.read_bytes())
    buckets["lake"].put("set/deeper/other.npz", b"not looked at")
    source = "s3://lake/set" if as_folder else f"s3://lake/set/{path.name}"
    assert_same(load_dataset(source, open_bucket=buckets.__getitem__))


def test_digits_are_split_once_and_for_all() -> None:
    train, test = load_dataset("digits:train"), load_dataset("digits:test")
    assert (train.x.shape, test.x.shape) == ((1437, 64), (360, 64))
    assert (train.x.dtype.name, train.y.dtype.name) == ("float32", "int64")
    assert (train.x.min(), train.x.max()) == (0.0, 1.0)
    assert train.y[:8].tolist() == load_dataset("digits:train").y[:8].tolist()
    rows = {row.tobytes() for row in train.x}
    assert sum(row.tobytes() in rows for row in test.x) == 0
    assert np.bincount(test.y, minlength=10).min() > 20


def test_digits_are_scikit_learns_own_and_come_without_it() -> None:
    code = (
        "import sys; from gradmux.orchestrator.training.data import all_digits\n"
        "print('sklearn' in sys.modules, all_digits()[0].shape)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "False (1797, 64)\n"
    for ours, theirs in zip(all_digits(), load_digits(return_X_y=True), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_arrays_tensors_and_lists_in_memory() -> None:
    assert_same(load_dataset((X, Y)))
    assert_same(load_dataset((torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y))))
    assert_same(load_dataset((X.tolist(), Y.tolist())))
    assert_same(load_dataset((X.T.copy().T, Y.astype(">i4"))))


def test_types_that_workers_take() -> None:
    assert load_dataset((X.astype(np.float64), X)).x.dtype == np.float32
    assert load_dataset((X, X), dtype="float64").y.dtype == np.float64
    assert load_dataset((X.astype(np.uint8), Y)).x.dtype == np.uint8
    assert load_dataset((X.astype(np.uint16), Y.astype(np.uint8))).x.dtype == np.int64
    assert load_dataset((X, Y.astype(np.uint8))).y.dtype == np.int64


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (X, Y[:3], r"x \(4, 3\) and y \(3,\) must have the same number of rows"),
        (X[:0], Y[:0], "0 rows"),
        (np.float32(1), Y, "a single value has no rows"),
        (X[:, :0], Y, "rows without values"),
        (np.where(X == 7, np.nan, X), Y, "arrays: x: row 2 holds NaN"),
        (X.astype(np.float64) * 1e300, Y, "row 0 holds 1e.300, more than float32 can hold"),
        (X, np.array(["a", "b", "c", "d"]), r"arrays: y: holds text \(<U1\), no numbers: turn it"),
        (X.astype(complex), Y, r"arrays: x: holds complex numbers \(complex128\)"),
        ([[1, 2], [3]], Y, "inhomogeneous"),
    ],
)
def test_arrays_that_are_no_data_set(x: Any, y: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_dataset((x, y))


@pytest.mark.parametrize(
    ("name", "write", "text"),
    [
        ("none.npz", lambda path: None, "no such file or folder"),
        ("digits:rest", lambda path: None, "no such built-in data set; there are digits:test, digits:train"),
        ("d.txt", lambda path: path.write_text("1,2"), "expected a file ending in .npz, .npy, .parquet, .csv"),
        ("d.npz", lambda path: path.write_bytes(b"PK\x03\x04 cut off"), "cannot be read"),
        ("d.npz", lambda path: path.write_bytes(b""), "cannot be read"),
        (
            "d.npz",
            lambda path: np.savez(path, x=X, z=Y),
            "one of y, label, target; it has x, z",
        ),
        ("d.npz", lambda path: np.savez(path, x=X, y=np.array([{}, 1, 2, 3])), "d.npz: y: holds Python objects"),
        ("x.npy", lambda path: np.save(path, X), "the file of targets .*y.npy is missing"),
        ("all.npy", lambda path: np.save(path, X), "name the file of inputs"),
        ("d.parquet", lambda path: path.write_bytes(b"PAR1 no"), "cannot be read"),
        ("d.parquet", lambda path: pq.write_table(pa.table({"a": [1], "b": [2]}), path), "it has a, b"),
        ("d.parquet", lambda path: pq.write_table(pa.table({"a": [1.0, None], "y": [2, 3]}), path), "missing values"),
        ("d.parquet", lambda path: pq.write_table(pa.table({"x": [[1], [2, 3]], "y": [2, 3]}), path), "lengths"),
        ("folder", lambda path: path.mkdir(), "no .npz, .npy, .parquet, .csv files in it"),
    ],
)
def test_files_that_are_no_data_set(
    name: str, write: Callable[[Path], object], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    with pytest.raises(ConfigError, match=text) as caught:
        load_dataset(name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_must_hold_one_kind_of_files_that_fit_together(tmp_path: Path) -> None:
    write_npz(tmp_path)
    np.savez(tmp_path / "e.npz", x=X[:, :2], y=Y)
    with pytest.raises(ConfigError, match="do not fit together"):
        load_dataset(str(tmp_path))
    write_parquet_columns(tmp_path)
    with pytest.raises(ConfigError, match="several kinds"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "text"),
    [("s3://lake/none", "no .npz, .npy, .parquet, .csv files"), ("s3://lake/a/none.npz", "no such object")],
)
def test_missing_objects(source: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_dataset(source, open_bucket=lambda _: MemoryStore())
    with pytest.raises(ConfigError, match="S3 is not available here"):
        load_dataset(source)


def test_workers_read_what_was_put_and_nothing_is_put_twice() -> None:
    store, dataset = MemoryStore(), as_dataset(X, Y, "test")
    ref = put_dataset(store, dataset)
    manifest = parse_manifest(store.get(ref.key))
    assert (ref.rows, manifest.layout.rows) == (4, 4)
    read = Shards(manifest, store.get_range).arrays(np.arange(4))
    assert read.keys() == {"x", "y"}
    for name, array in read.items():
        np.testing.assert_array_equal(array, dataset.arrays[name])
    before = store.list("")
    assert put_dataset(store, dataset) == ref
    assert put_dataset(store, as_dataset(X, Y[::-1], "test")).key != ref.key
    assert len(store.list("")) == len(before) + 2
