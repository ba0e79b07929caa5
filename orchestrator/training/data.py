"""Data sets: what a job may name (built-in, arrays, file, folder, S3) -> rows, and rows -> objects for workers.

Rows are samples: x is (rows, ...), y (rows, ...) the targets. Knows neither batches nor models. How files are read is
in `reading.py`; which rows make a batch, in `order.py`. Read `order.py` next.
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
from gradmux.orchestrator.listing import UNREADABLE
from gradmux.orchestrator.ports import Bucket, Store
from gradmux.orchestrator.store import Keys, put_once
from gradmux.orchestrator.training.dataset import Array, Arrays, Dataset
from gradmux.orchestrator.training.foreign import from_arrays, from_folder, from_python
from gradmux.orchestrator.training.reading import read_bucket, read_path
from gradmux.orchestrator.training.taking import NOTHING, Declared

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

OpenBucket: TypeAlias = Callable[[str], Bucket]

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
    source: Any, open_bucket: OpenBucket | None = None, *, dtype: str = "float32", declared: Declared = NOTHING
) -> Dataset:
    """The rows that a job names; floating values become `dtype`, the models' own.

    "digits:train" and "digits:test"; a path (.npz, .npy, .parquet, .csv, a folder of these, a packed data set, images
    in folders by class, a saved Hugging Face data set); s3://bucket/prefix, through the store that `open_bucket` gives;
    and what a Python program holds: see `foreign.py`.
    Raises: ConfigError in one line for anything missing or ill-formed.
    """
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str | Path):
        return from_python(source, "arrays", declared, dtype)
    name = str(source)
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name.startswith("s3://"):
        return _from_bucket(name, open_bucket, declared, dtype)
    if ":" in name and not Path(name).exists():
        raise ConfigError(f"data {name}: no such built-in data set; there are {', '.join(sorted(BUILT_IN))}")
    return from_folder(Path(name), declared) or read_path(Path(name), declared, dtype)


def _from_bucket(name: str, open_bucket: OpenBucket | None, declared: Declared, dtype: str) -> Dataset:
    bucket, _, prefix = name.removeprefix("s3://").partition("/")
    if open_bucket is None:
        raise ConfigError(f"data {name}: S3 is not available here; use a local path")
    if any(part in UNREADABLE for part in prefix.removesuffix("/").split("/") if prefix):
        raise ConfigError(f"data {name}: a key with an empty part, or one that is . or .., cannot be read: rename it")
    return read_bucket(open_bucket(bucket), prefix, name, declared, dtype)


def as_dataset(x: Any, y: Any, where: str, dtype: str = "float32") -> Dataset:
    """A data set of arrays, tensors or lists, or of tuples or dicts of them. Raises ConfigError that names `where`."""
    return from_arrays(x, y, None, where, dtype)


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
    done = dataset.preparation.described()
    extra = {"prepare": done} if done else {}
    manifest = Manifest(packed.manifest.layout, packed.manifest.digests, Keys.DATA_SHARDS, extra)
    for shard in range(manifest.layout.shards):
        if not store.exists(manifest.key(shard)):
            store.put(manifest.key(shard), packed.shard(shard))
    content = encode_manifest(manifest)
    return DataRef(put_once(store, Keys.data_manifest(content), content), dataset.rows)
