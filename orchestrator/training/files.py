"""Files of samples -> (x, y): .npz, pairs of .npy, .parquet, and folders of these, on disk or in S3.

A folder holds either one pair of .npy files or any number of .npz or .parquet files, which are joined in the order of
their names. Knows nothing of what the numbers mean. Read next: `data.py`.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Store

Pair: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
Open: TypeAlias = Callable[[str], BinaryIO]
"""Opens a file by the name it was listed under."""

ENDINGS = (".npz", ".npy", ".parquet")
TARGET_COLUMNS = ("y", "label", "target")
INPUT_COLUMN = "x"
LETTER_X = re.compile(r"(?:^|(?<=[_.-]))[xX](?=$|[_.-])")
"""The x that stands alone in a file's stem: x, X_train, digits-x."""


def read_path(path: Path) -> Pair:
    """(x, y) of a file or folder. Raises ConfigError."""
    if not path.exists():
        raise ConfigError(f"data {path}: no such file or folder")
    if path.is_dir():
        return _read_folder([str(entry) for entry in path.iterdir() if entry.is_file()], _open_path, str(path))
    siblings = [str(entry) for entry in path.parent.iterdir()]
    return _read_file(str(path), siblings, _open_path)


def read_bucket(store: Store, prefix: str, where: str) -> Pair:
    """(x, y) of an object, or of those under a prefix. Raises ConfigError that names `where`."""
    folder = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"

    def open_object(key: str) -> BinaryIO:
        return io.BytesIO(store.get(key))

    if PurePosixPath(prefix).suffix in ENDINGS:
        if not store.exists(prefix):
            raise ConfigError(f"data {where}: no such object")
        parent = prefix.rpartition("/")[0]
        return _read_file(prefix, store.list(f"{parent}/" if parent else ""), open_object)
    names = [key for key in store.list(folder) if "/" not in key.removeprefix(folder)]
    return _read_folder(names, open_object, where)


def _open_path(name: str) -> BinaryIO:
    return Path(name).open("rb")


def _read_folder(names: Sequence[str], open_file: Open, where: str) -> Pair:
    found = sorted(name for name in names if PurePosixPath(name).suffix in ENDINGS)
    kinds = {PurePosixPath(name).suffix for name in found}
    if not found:
        raise ConfigError(f"data {where}: no {', '.join(ENDINGS)} files in it")
    if len(kinds) > 1:
        raise ConfigError(f"data {where}: files of several kinds in it ({', '.join(sorted(kinds))}); keep one kind")
    if kinds == {".npy"}:
        inputs = [name for name in found if LETTER_X.search(PurePosixPath(name).stem)]
        if len(inputs) != 1:
            raise ConfigError(f"data {where}: expected one pair of files such as x.npy and y.npy")
        return _read_file(inputs[0], found, open_file)
    return _joined([_read_file(name, found, open_file) for name in found], where)


def _joined(parts: Sequence[Pair], where: str) -> Pair:
    try:
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    except ValueError as error:
        raise ConfigError(f"data {where}: its files do not fit together: {error}") from error


def _read_file(name: str, siblings: Iterable[str], open_file: Open) -> Pair:
    """One file, a pair of .npy files for one of their names."""
    readers = {".npz": _read_npz, ".parquet": _read_parquet}
    suffix = PurePosixPath(name).suffix
    if suffix not in ENDINGS:
        raise ConfigError(f"data {name}: expected a file ending in {', '.join(ENDINGS)}, or a folder of these")
    try:
        if suffix == ".npy":
            return _read_npy(name, open_file), _read_npy(_partner(name, siblings), open_file)
        with open_file(name) as stream:
            return readers[suffix](stream, name)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"data {name}: cannot be read: {reason}") from error


def _read_npz(stream: BinaryIO, name: str) -> Pair:
    with np.load(stream, allow_pickle=False) as archive:
        if isinstance(archive, np.ndarray) or not {"x", "y"} <= set(archive.files):
            held = "one array" if isinstance(archive, np.ndarray) else ", ".join(archive.files) or "nothing"
            raise ConfigError(f"data {name}: expected arrays named x and y, it holds {held}")
        return archive["x"], archive["y"]


def _read_npy(name: str, open_file: Open) -> NDArray[Any]:
    with open_file(name) as stream:
        array = np.load(stream, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"data {name}: it holds no array")
    return array


def _partner(name: str, siblings: Iterable[str]) -> str:
    """The file of targets that belongs to a file of inputs: the x in its name becomes a y."""
    path = PurePosixPath(name)
    expected = str(path.with_name(LETTER_X.sub("y", path.stem) + ".npy"))
    if not LETTER_X.search(path.stem):
        raise ConfigError(f"data {name}: name the file of inputs, with an x in its name, such as x.npy or X_train.npy")
    if expected not in set(siblings):
        raise ConfigError(f"data {name}: the file of targets {expected} is missing")
    return expected


def _read_parquet(stream: BinaryIO, name: str) -> Pair:
    """Targets are the column y, label or target; inputs the column x (numbers or lists), or all other columns."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(stream)
    targets = [column for column in table.column_names if column in TARGET_COLUMNS]
    others = [column for column in table.column_names if column not in TARGET_COLUMNS]
    if len(targets) != 1 or not others:
        raise ConfigError(
            f"data {name}: expected columns of inputs and one of {', '.join(TARGET_COLUMNS)}, "
            f"it has {', '.join(table.column_names) or 'none'}"
        )
    if INPUT_COLUMN in others:
        x = _column(table, INPUT_COLUMN, name)
    else:
        x = np.stack([_column(table, column, name) for column in others], axis=1)
    return x, _column(table, targets[0], name)


def _column(table: Any, column: str, name: str) -> NDArray[Any]:
    """(rows,) of numbers, or (rows, n) of lists of n numbers."""
    values = table.column(column).combine_chunks()
    if values.null_count:
        raise ConfigError(f"data {name}: column {column} holds missing values")
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if array.dtype == object:
        lengths = {np.size(entry) for entry in array}
        if len(lengths) != 1:
            raise ConfigError(f"data {name}: column {column} holds lists of different lengths, or no numbers")
        array = np.stack([np.asarray(entry) for entry in array])
    return array
