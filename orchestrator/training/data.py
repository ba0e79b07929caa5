"""Data sets: what a job may name (built-in, arrays, file, folder, S3) -> arrays, and arrays -> objects for workers.

Rows are samples: x is (rows, ...), y (rows, ...) the targets. Knows neither batches nor models. How files are read is
in `files.py`; which rows make a batch, in `order.py`. Read `order.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gradmux.lambda_worker.layout import Manifest, encode_manifest
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Store
from gradmux.orchestrator.store import Keys, put_once
from gradmux.orchestrator.training.dataset import Array, Arrays, Dataset
from gradmux.orchestrator.training.files import read_bucket, read_path

__all__ = [
    "BUILT_IN",
    "Array",
    "Arrays",
    "DataRef",
    "Dataset",
    "all_digits",
    "as_dataset",
    "load_dataset",
    "put_dataset",
]

OpenBucket: TypeAlias = Callable[[str], Store]

MAX_ROWS = 2**32
"""Row numbers travel as uint32."""
DIGITS_TEST_SHARE = 5
"""One row in five is kept for testing."""
DIGITS_LARGEST = 16.0
"""Brightest pixel of scikit-learn's digits."""


@dataclass(frozen=True, slots=True)
class DataRef:
    """A data set in the store, as requests name it."""

    key: str
    """of its manifest"""
    rows: int


def load_dataset(
    source: str | tuple[Any, Any], open_bucket: OpenBucket | None = None, *, dtype: str = "float32"
) -> Dataset:
    """The rows that a job names; floating values become `dtype`, the models' own.

    "digits:train" and "digits:test"; a pair of arrays or tensors; a path ending in .npz (x, y), .npy (a pair of files)
    or .parquet, or a folder of these; s3://bucket/prefix, through the store that `open_bucket` gives.
    Raises: ConfigError in one line for anything missing or ill-formed.
    """
    if not isinstance(source, str):
        return as_dataset(*source, "arrays", dtype)
    if source in BUILT_IN:
        built_in = BUILT_IN[source]()
        return as_dataset(built_in.x, built_in.y, source, dtype)
    if source.startswith("s3://"):
        bucket, _, prefix = source.removeprefix("s3://").partition("/")
        if open_bucket is None:
            raise ConfigError(f"data {source}: S3 is not available here; use a local path")
        return as_dataset(*read_bucket(open_bucket(bucket), prefix, source), source, dtype)
    if ":" in source and not Path(source).exists():
        raise ConfigError(f"data {source}: no such built-in data set; there are {', '.join(sorted(BUILT_IN))}")
    return as_dataset(*read_path(Path(source)), source, dtype)


def as_dataset(x: Any, y: Any, where: str, dtype: str = "float32") -> Dataset:
    """A data set of two arrays, tensors or lists. Raises ConfigError that names `where`."""
    inputs, targets = _as_array(x, f"{where}: x", dtype), _as_array(y, f"{where}: y", dtype)
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        raise ConfigError(f"data {where}: x {inputs.shape} and y {targets.shape} must have the same number of rows")
    if not 0 < len(inputs) <= MAX_ROWS:
        raise ConfigError(f"data {where}: {len(inputs)} rows; there must be one or more, and at most 2^32")
    if 0 in inputs.shape or 0 in targets.shape:
        raise ConfigError(f"data {where}: x {inputs.shape} and y {targets.shape} have rows without values")
    if targets.dtype.kind in "iu":
        targets = targets.astype(np.int64)
    return Dataset(inputs, targets)


def all_digits() -> tuple[Array, Array]:
    """scikit-learn's digits: (1797, 64) pixels from 0 to 16, (1797,) classes.

    Its file is read without it where it is found: to import scikit-learn takes longer than a short training.
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.exists():
        rows = np.loadtxt(file, delimiter=",")
        return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    return pixels, classes


def digits(part: str) -> Dataset:
    """scikit-learn's handwritten digits (1,797 rows of 64 pixels in [0, 1], 10 classes): "train" or "test".

    The split is fixed: rows by a seeded permutation, every fifth of it for testing.
    """
    pixels, classes = all_digits()
    order = np.argsort(np.random.PCG64(0).random_raw(len(classes)), kind="stable")
    for_test = np.arange(len(order)) % DIGITS_TEST_SHARE == 0
    chosen = order[for_test if part == "test" else ~for_test]
    return Dataset((pixels[chosen] / DIGITS_LARGEST).astype(np.float32), classes[chosen].astype(np.int64))


BUILT_IN: Mapping[str, Callable[[], Dataset]] = {
    "digits:train": lambda: digits("train"),
    "digits:test": lambda: digits("test"),
}


def put_dataset(store: Store, dataset: Dataset) -> DataRef:
    """Makes rows available to workers: shards, and a manifest that names them. The client holds one shard at a time.

    Everything is named by its content, so what is there already is not uploaded again.
    """
    packed = dataset.packed
    manifest = Manifest(packed.manifest.layout, packed.manifest.digests, Keys.DATA_SHARDS)
    for shard in range(manifest.layout.shards):
        if not store.exists(manifest.key(shard)):
            store.put(manifest.key(shard), packed.shard(shard))
    content = encode_manifest(manifest)
    return DataRef(put_once(store, Keys.data_manifest(content), content), dataset.rows)


def _as_array(values: Any, where: str, dtype: str) -> Array:
    """Numbers in a type that workers take: floats as `dtype`, all else as it is where that is possible.

    Raises: ConfigError, also for NaN and infinity.
    """
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ConfigError(f"data {where}: {error}") from error
    if array.dtype.kind not in "fiub" or (array.dtype.itemsize > 4 and array.dtype.kind == "u"):
        raise ConfigError(f"data {where}: values of type {array.dtype} are no numbers that workers take")
    if array.dtype.kind == "f":
        array = _finite(array, where, dtype)
    elif array.dtype.name in ("uint16", "uint32"):  # torch can hardly compute with these
        array = array.astype(np.int64)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def _finite(array: Array, where: str, dtype: str) -> Array:
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, copy=False)
    bad = ~np.isfinite(cast)
    if bad.any():
        row = int(np.argwhere(bad)[0][0]) if bad.ndim else 0
        raise ConfigError(f"data {where}: row {row} holds NaN, infinity or more than {dtype} can hold")
    return cast
