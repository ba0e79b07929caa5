"""A data set as it is told of, and packed once and for all where jobs can name it: a folder, a prefix in S3, one .npz.

Knows no command. Read `packing.py` for the format.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradmux.lambda_worker.layout import SHARD_BYTES
from gradmux.lambda_worker.structure import TARGET
from gradmux.orchestrator.disk import require_writable
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Store
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.packing import INDEX, Folder, Prefix, Progress, Shelf

MOST_CLASSES = 50
"""More different targets than this are not counted one by one."""
NPZ = ".npz"
NPZ_BYTES = 8 * SHARD_BYTES
S3 = "s3://"


def require_place(destination: str) -> None:
    """To be asked before the rows are read. Raises: ConfigError when they cannot be put there."""
    path = Path(destination)
    if destination.startswith(S3):
        return
    if path.suffix and path.suffix != NPZ and not path.is_dir():
        raise ConfigError(f"{path}: must be a folder, end in .npz, or begin with s3://")
    if path.is_dir() and path.suffix != NPZ:
        if any(path.iterdir()) and not (path / INDEX).exists():
            raise ConfigError(f"{path}: is a folder with other files in it; name a new one")
        return
    require_writable(path)


def place(dataset: Dataset, destination: str, open_bucket: Callable[[str], Store], told: Progress) -> None:
    """Writes all rows. Raises: ConfigError, DiskError, and what the store raises."""
    if not destination.startswith(S3):
        path = Path(destination)
        path.write_bytes(_npz(dataset)) if path.suffix == NPZ else _pack(dataset, Folder(path), told)
        return
    bucket, _, prefix = destination.removeprefix(S3).partition("/")
    store = open_bucket(bucket)
    if prefix.endswith(NPZ):
        store.put(prefix, _npz(dataset))
    else:
        _pack(dataset, Prefix(store, f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""), told)


def described(source: str, dataset: Dataset) -> dict[str, Any]:
    """Rows, columns and classes, as JSON."""
    columns = {
        each.name: {"shape": list(each.shape), "dtype": each.dtype, "bytes": each.row_bytes * dataset.rows}
        for each in dataset.columns
    }
    told: dict[str, Any] = {"source": source, "rows": dataset.rows, **columns, "columns": list(columns)}
    if dataset.told:
        told["taken"] = dataset.told
    classes = _classes(dataset)
    return told if classes is None else {**told, "classes": classes}


def _pack(dataset: Dataset, shelf: Shelf, told: Progress) -> None:
    dataset.packed.put(shelf, told, {"told": dataset.told} if dataset.told else {})


def _npz(dataset: Dataset) -> bytes:
    if dataset.bytes > NPZ_BYTES:
        raise ConfigError(f"{dataset.bytes / 2**20:,.0f} MiB are too much for one .npz file: name a folder")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dataset.arrays)
    return buffer.getvalue()


def _classes(dataset: Dataset) -> dict[str, int] | None:
    """How many rows each has; None where targets are no classes."""
    if not dataset.labels():
        return None
    counts: dict[int, int] = {}
    for block in dataset.blocks():
        for value, count in zip(*np.unique(block[TARGET], return_counts=True), strict=True):
            counts[int(value)] = counts.get(int(value), 0) + int(count)
        if len(counts) > MOST_CLASSES:
            return None
    return {str(value): counts[value] for value in sorted(counts)}
