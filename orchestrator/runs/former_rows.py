"""Rows as version 0.1.0 kept them in a run's folder: one .npy file for inputs, one for targets. Such runs go on.

Used by `materials.py` alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.runs.life import FolderError
from gradmux.orchestrator.store import digest
from gradmux.orchestrator.training.dataset import Dataset


def former_rows(folder: Path, part: str) -> Dataset | None:
    """The rows, when they were kept so. Raises FolderError."""
    files = [folder / f"{part}.{name}.npy" for name in ("x", "y")]
    return Dataset(*map(_load, files)) if any(file.exists() for file in files) else None


def former_digest(rows: Dataset) -> str:
    """SHA-256 of types, shapes and values, as it was made of one x and one y; empty for other rows."""
    if [column.name for column in rows.columns] != ["x", "y"]:
        return ""
    raw = [np.ascontiguousarray(array) for array in (rows.x, rows.y)]
    told = [f"{array.dtype.str} {array.shape} {digest(array.data.cast('B'))}" for array in raw]
    return digest("\n".join(told).encode())


def _load(file: Path) -> NDArray[Any]:
    try:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("not one array")
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise FolderError(f"{file} cannot be read: restore the file, or submit the job again") from error
    return array
