"""Files of samples -> data sets: .npz, pairs of .npy, .parquet, .csv, folders of these, on disk or in S3.

A folder holds a packed data set (`packing.py`), one pair of .npy files, or any number of files of one kind, which are
joined in the order of their names. Rows are read some megabytes at a time and checked; what is more than one shard of
them goes to disk as shards, and what lies in S3 is fetched to disk first: a client holds no more than one shard.
Knows nothing of what the numbers mean. Read next: `taking.py`, `data.py`.
"""

from __future__ import annotations

import logging
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from gradmux.lambda_worker.layout import SHARD_BYTES
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Bucket
from gradmux.orchestrator.training.arrays_on_disk import open_npy, open_npz
from gradmux.orchestrator.training.checking import checked, require_rows, require_weights
from gradmux.orchestrator.training.dataset import Arrays, Dataset, MemorySource
from gradmux.orchestrator.training.packing import INDEX, Folder, PackedSource, Packer, open_folder, open_prefix
from gradmux.orchestrator.training.spool import Spool
from gradmux.orchestrator.training.tables import CsvTable, ParquetTable
from gradmux.orchestrator.training.taking import Declared, Taken, take

log = logging.getLogger(__name__)

ENDINGS = (".npz", ".npy", ".parquet", ".csv")
LETTER_X = re.compile(r"(?:^|(?<=[_.-]))[xX](?=$|[_.-])")
"""The x that stands alone in a file's stem: x, X_train, digits-x."""
NPY = ".npy"


class Reader(Protocol):
    """One file, or several that are read side by side."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def index(self) -> tuple[str, ...]:
        """Names that number the rows."""
        ...

    @property
    def table(self) -> bool:
        """Are its columns features, each of them?"""
        ...

    def blocks(self, names: Sequence[str]) -> Iterator[Arrays]: ...


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of a data set are, under the names that are told."""

    found: Mapping[str, Callable[[], Path]]
    """name -> fetches it; the path"""
    where: str
    """of all of them"""

    def single(self, name: str) -> Files:
        return Files({name: self.found[name]}, name)


def read_path(path: Path, declared: Declared, dtype: str) -> Dataset:
    """A file or folder. Raises: ConfigError."""
    if not path.exists():
        raise ConfigError(f"data {path}: no such file or folder")
    if path.is_dir():
        if (path / INDEX).exists():
            return _packed(open_folder(path), str(path), declared)
        names = [str(entry) for entry in path.iterdir() if entry.is_file()]
        return _read_folder(Files({name: _at(name) for name in names}, str(path)), declared, dtype)
    names = [str(path)]
    if path.suffix == NPY:
        names += [name for name in [_partner(str(path))] if Path(name).exists()]
    return _read_file(Files({name: _at(name) for name in names}, str(path)), str(path), declared, dtype)


def read_bucket(store: Bucket, prefix: str, where: str, declared: Declared, dtype: str) -> Dataset:
    """An object, or those under a prefix. Raises: ConfigError that names `where`."""
    spool = Spool()
    bucket = where.removeprefix("s3://").partition("/")[0]

    def fetched(key: str) -> Callable[[], Path]:
        return lambda: spool.fetch(store, key, PurePosixPath(key).suffix)

    if PurePosixPath(prefix).suffix in ENDINGS:
        keys = [prefix, *([_partner(prefix)] if prefix.endswith(NPY) else [])]
        keys = [key for key in keys if store.exists(key)]
        if prefix not in keys:
            raise ConfigError(f"data {where}: no such object")
        files = Files({f"s3://{bucket}/{key}": fetched(key) for key in keys}, where)
        return _read_file(files, f"s3://{bucket}/{prefix}", declared, dtype)
    folder = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
    if store.exists(f"{folder}{INDEX}"):
        return _packed(open_prefix(store, folder, where), where, declared)
    found = {f"s3://{bucket}/{key}": fetched(key) for key in store.children(folder)}
    return _read_folder(Files(found, where), declared, dtype)


def gathered_blocks(blocks: Iterable[Arrays], where: str, told: str = "") -> Dataset:
    """Checked blocks of rows as a data set: in memory up to one shard, beyond that as shards on disk."""
    kept: list[Arrays] = []
    size, stream = 0, iter(blocks)
    for block in stream:
        kept.append(block)
        size += sum(array.nbytes for array in block.values())
        if size > SHARD_BYTES:
            return Dataset.over(_spooled(kept, stream), told)
    if not kept:
        raise ConfigError(f"data {where}: 0 rows; there must be one or more, and at most 2^32")
    arrays = {name: np.concatenate([block[name] for block in kept]) for name in kept[0]}
    require_rows(arrays, where)
    return Dataset.over(MemorySource(arrays), told)


def _spooled(kept: list[Arrays], stream: Iterator[Arrays]) -> PackedSource:
    """The rows as shards in a folder that lasts as long as the source."""
    spool = Spool()
    log.info("rows go to %s, in shards; `gradmux data put` does it once and for all", spool.path)
    packer = Packer(Folder(spool.path))
    for block in kept:
        packer.add(block)
    kept.clear()
    for block in stream:
        packer.add(block)
    packer.finish({})
    source = open_folder(spool.path)
    source.keeps = spool
    return source


def _packed(source: PackedSource, where: str, declared: Declared) -> Dataset:
    if declared.inputs is not None or declared.targets is not None:
        raise ConfigError(f"data {where}: is packed already: give data.inputs and data.targets to `gradmux data put`")
    return Dataset.over(source, str(source.manifest.extra.get("told", "")))


def _at(name: str) -> Callable[[], Path]:
    return lambda: Path(name)


def _read_folder(files: Files, declared: Declared, dtype: str) -> Dataset:
    found = sorted(name for name in files.found if PurePosixPath(name).suffix in ENDINGS)
    kinds = {PurePosixPath(name).suffix for name in found}
    if not found:
        raise ConfigError(f"data {files.where}: no {', '.join(ENDINGS)} files in it")
    if len(kinds) > 1:
        raise ConfigError(
            f"data {files.where}: files of several kinds in it ({', '.join(sorted(kinds))}); keep one kind"
        )
    if kinds == {NPY}:
        inputs = [name for name in found if LETTER_X.search(PurePosixPath(name).stem)]
        if len(inputs) != 1:
            raise ConfigError(f"data {files.where}: expected one pair of files such as x.npy and y.npy")
        return _read_file(files, inputs[0], declared, dtype)
    return _read_all({name: files.single(name) for name in found}, files.where, declared, dtype)


def _read_file(files: Files, name: str, declared: Declared, dtype: str) -> Dataset:
    """One file; a pair of .npy files for the one with the inputs."""
    if PurePosixPath(name).suffix not in ENDINGS:
        raise ConfigError(f"data {name}: expected a file ending in {', '.join(ENDINGS)}, or a folder of these")
    return _read_all({name: files}, name, declared, dtype)


def _read_all(parts: Mapping[str, Files], where: str, declared: Declared, dtype: str) -> Dataset:
    """Files in this order, one after the other. The first says what is taken of all."""
    first = next(iter(parts))
    with _told(first):
        opened = _open(parts[first], first, declared)
    taken = take(opened.names, opened.index, declared, first, table=opened.table)

    def blocks() -> Iterator[Arrays]:
        kinds: Mapping[str, object] = {}
        for name, files in parts.items():
            with _told(name):
                reader = opened if name == first else _open(files, name, declared)
                if missing := [column for column in taken.names if column not in reader.names]:
                    raise ConfigError(f"data {where}: its files do not fit together: {name} has no {missing[0]}")
                for block in _checked(reader, taken, name, dtype):
                    seen = {column: (array.dtype.name, array.shape[1:]) for column, array in block.items()}
                    kinds = kinds or seen
                    _require_alike(kinds, seen, where, name)
                    yield block

    return gathered_blocks(blocks(), where, taken.told())


def _checked(reader: Reader, taken: Taken, name: str, dtype: str) -> Iterator[Arrays]:
    row = 0
    for found in reader.blocks(taken.names):
        single = {column: each for column, each in found.items() if column in taken.names}
        for column, each in single.items():  # by the names in the file, before they stand side by side
            checked({column: each}, name, dtype, row)
        block = checked(taken.assemble(found, name), name, dtype, row)
        require_rows(block, name)
        require_weights(block, name)
        yield block
        row += len(next(iter(block.values())))


def _require_alike(kinds: Mapping[str, object], seen: Mapping[str, object], where: str, name: str) -> None:
    for column, kind in seen.items():
        if kinds[column] != kind:
            raise ConfigError(
                f"data {where}: its files do not fit together: {column} is {_kind(kinds[column])} before and "
                f"{_kind(kind)} in {name}"
            )


def _kind(kind: object) -> str:
    dtype, shape = kind  # type: ignore[misc]
    return f"{dtype} {shape} a row"  # type: ignore[has-type]


def _open(files: Files, name: str, declared: Declared) -> Reader:
    match PurePosixPath(name).suffix:
        case ".npz":
            return open_npz(files.found[name](), name)
        case ".npy":
            return _open_pair(files, name)
        case ".parquet":
            return ParquetTable(files.found[name](), name, declared.pad)
        case _:
            return CsvTable(files.found[name](), name, declared.types, declared.pad)


def _open_pair(files: Files, name: str) -> Reader:
    partner = _partner(name)
    if partner not in files.found:
        raise ConfigError(f"data {name}: the file of targets {partner} is missing")
    shown = {"x": name, "y": partner}
    return open_npy({role: files.found[each]() for role, each in shown.items()}, shown)


def _partner(name: str) -> str:
    """The file of targets that belongs to a file of inputs: the x in its name becomes a y."""
    folder, slash, last = name.rpartition("/")
    stem = last.removesuffix(NPY)
    if not LETTER_X.search(stem):
        raise ConfigError(f"data {name}: name the file of inputs, with an x in its name, such as x.npy or X_train.npy")
    return f"{folder}{slash}{LETTER_X.sub('y', stem)}{NPY}"


class _told:
    """Within it, whatever a reader of `name` raises becomes one line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        expected = (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, KeyError, zipfile.BadZipFile)
        if isinstance(error, (*expected, zlib.error)) and not isinstance(error, ConfigError):
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ConfigError(f"data {self._name}: cannot be read: {reason}") from error
