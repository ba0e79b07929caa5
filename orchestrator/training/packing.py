"""Rows from anywhere -> shards, one at a time in memory, and an index of them: the format that all data end in.

    blocks of rows -> `Packer` -> shards -> a `Shelf` (a folder, a store)
    a source       -> `packed`, which assembles each shard anew whenever it is asked for

What is on a shelf, `PackedSource` reads. Knows nothing of files of samples. See docs/data.md for the format, and
`lambda_worker/layout.py` for its arithmetic. Read `data.py` next.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gradmux.lambda_worker.contract import ContractError
from gradmux.lambda_worker.layout import SHARD_BYTES, Column, Layout, Manifest, parse_manifest
from gradmux.lambda_worker.layout import encode_manifest as encode_index
from gradmux.lambda_worker.shards import GetRange, Shards
from gradmux.orchestrator.disk import SHARED, Disk, write_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Store
from gradmux.orchestrator.store import digest
from gradmux.orchestrator.training.dataset import Array, Arrays, Labels, Source, is_labels, labels_of, wider

INDEX = "index.json"
SHARDS = "shards/"
DIGEST = re.compile(r"[0-9a-f]{64}")
"""SHA-256 in hexadecimal"""
Progress = Callable[[int], None]
"""Told the number of rows that are done."""


class Shelf(Protocol):
    """Where shards are put, by the digest of what is in them."""

    def put(self, name: str, content: memoryview) -> None:
        """Unless it is there."""
        ...

    def put_index(self, content: bytes) -> None: ...


class Folder:
    """A shelf on disk, and what reads from it."""

    def __init__(self, path: Path, disk: Disk = SHARED) -> None:
        self.path, self._disk = path, disk

    def put(self, name: str, content: memoryview) -> None:
        """Raises: DiskError."""
        target = self.path / SHARDS / name
        if not target.exists() or target.stat().st_size != len(content):
            self._disk.make_folder(target.parent)
            write_whole(target, [content], self._disk)

    def put_index(self, content: bytes) -> None:
        """The last that is written: before, there is no data set."""
        self._disk.make_folder(self.path)
        write_whole(self.path / INDEX, [content], self._disk)

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        """By plain reads: what is mapped would count as this process's memory."""
        name = self.path / SHARDS / key
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                there = os.fstat(descriptor).st_size  # an index may say anything, and memory is taken first
                body = os.pread(descriptor, min(hi, there) - lo, lo) if there > lo else b""
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConfigError(f"data {name}: cannot be read: {error.strerror}") from error
        if len(body) != hi - lo:
            raise ConfigError(f"data {name}: is shorter than {self.path / INDEX} says: put the data set again")
        return body


class Prefix:
    """A shelf in a store, under a prefix, and what reads from it."""

    def __init__(self, store: Store, prefix: str) -> None:
        """`prefix`: empty, or ending in a slash."""
        self._store, self._prefix = store, prefix

    def put(self, name: str, content: memoryview) -> None:
        key = f"{self._prefix}{SHARDS}{name}"
        if not self._store.exists(key):
            self._store.put(key, content)

    def put_index(self, content: bytes) -> None:
        self._store.put(f"{self._prefix}{INDEX}", content)

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        """Raises: ConfigError when the shard is missing or shorter."""
        name = f"{self._prefix}{SHARDS}{key}"
        try:
            body = self._store.get_range(name, lo, hi)
        except FileNotFoundError as error:
            raise ConfigError(f"data: {error}: put the data set again") from error
        if len(body) != hi - lo:
            raise ConfigError(f"data {name}: is shorter than its index says: put the data set again")
        return body


class Packer:
    """Takes blocks of rows and gives them to a shelf, shard by shard; holds one shard."""

    def __init__(self, shelf: Shelf, shard_bytes: int = SHARD_BYTES) -> None:
        self._shelf, self._shard_bytes = shelf, shard_bytes
        self._shard: _Buffer | None = None
        self._digests: list[str] = []
        self._labels: dict[str, Labels | None] = {}
        self.rows = 0

    def add(self, arrays: Arrays) -> None:
        """Some more rows, of the same columns as all before."""
        if self._shard is None:
            columns = [Column(name, each.dtype.name, each.shape[1:]) for name, each in arrays.items()]
            self._shard = _Buffer(Layout.of(1, columns, self._shard_bytes))
        self._see_labels(arrays)
        count, done = len(next(iter(arrays.values()))), 0
        while done < count:
            done += self._shard.add({name: each[done:] for name, each in arrays.items()})
            if self._shard.full:
                self._flush(self._shard)
        self.rows += count

    def finish(self, extra: Mapping[str, Any]) -> Manifest:
        """Puts the last shard, then the index. At least one row was added."""
        assert self._shard is not None, "checked by who reads the files"
        if self._shard.rows:
            self._flush(self._shard)
        layout = replace(self._shard.layout, rows=self.rows)
        labels = {name: _told(found) for name, found in self._labels.items() if found is not None}
        manifest = Manifest(layout, tuple(self._digests), extra={**extra, "labels": labels})
        self._shelf.put_index(encode_index(manifest))
        return manifest

    def _flush(self, shard: _Buffer) -> None:
        content = shard.content()
        name = digest(content)
        self._shelf.put(name, content)
        self._digests.append(name)
        shard.rows = 0

    def _see_labels(self, arrays: Arrays) -> None:
        for name, array in arrays.items():
            if is_labels(name, array.dtype.name):
                seen = labels_of(array, self.rows)
                self._labels[name] = wider(self._labels[name], seen) if name in self._labels else seen


class _Buffer:
    """One shard being filled."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._full = replace(layout, rows=layout.shard_rows)
        self._memory = np.zeros(self._full.size(0), np.uint8)
        self.rows = 0

    @property
    def full(self) -> bool:
        return self.rows == self.layout.shard_rows

    def add(self, arrays: Arrays) -> int:
        """As many of these rows as there is room for; how many."""
        count = min(self.layout.shard_rows - self.rows, len(next(iter(arrays.values()))))
        offsets = self._full.offsets(0)
        for column in self.layout.columns:
            lo = offsets[column.name] + self.rows * column.row_bytes
            room = self._memory[lo : lo + count * column.row_bytes]
            room.view(column.wire_type).reshape(count, *column.shape)[...] = arrays[column.name][:count]
        self.rows += count
        return count

    def content(self) -> memoryview:
        """The shard of these rows; of fewer than fill it, the arrays are moved together."""
        layout = replace(self.layout, rows=self.rows)
        have, offsets = self._full.offsets(0), layout.offsets(0)
        memory = self._memory.data
        ends = list(offsets.values())[1:]
        for column, end in zip(self.layout.columns, ends, strict=True):
            length, at, source = self.rows * column.row_bytes, offsets[column.name], have[column.name]
            if at != source:
                memory[at : at + length] = memory[source : source + length]  # memmove: they may overlap
            self._memory[at + length : end] = 0
        return memory[: offsets[""]]


class PackedSource:
    """`Source` over a manifest and what reads its shards."""

    def __init__(self, manifest: Manifest, get_range: GetRange) -> None:
        self.manifest, self.layout = replace(manifest, place=""), manifest.layout
        self.get_range = get_range
        self.keeps: object = None
        """what must last as long as this does"""
        self._shards = Shards(self.manifest, get_range)

    @property
    def rows(self) -> int:
        return self.layout.rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.layout.columns

    def read(self, lo: int, hi: int) -> Arrays:
        return self._shards.arrays(np.arange(lo, hi, dtype=np.int64))

    def take(self, rows: Array) -> Arrays:
        return self._shards.arrays(rows.astype(np.int64))

    def labels(self, column: str) -> Labels | None:
        found = self.manifest.extra.get("labels", {}).get(column)
        return None if found is None else Labels(*found)

    def shard(self, shard: int) -> memoryview:
        """Its bytes."""
        return memoryview(self.get_range(self.manifest.key(shard), 0, self.layout.size(shard)))


@dataclass(frozen=True, slots=True)
class Packed:
    """A data set as shards, each made or read when it is asked for."""

    manifest: Manifest
    shard: Callable[[int], memoryview]
    get_range: GetRange
    """bytes of a shard, by its key"""

    @property
    def digest(self) -> str:
        """SHA-256 of types, shapes and values."""
        return digest(encode_index(Manifest(self.manifest.layout, self.manifest.digests)))

    def put(self, shelf: Shelf, told: Progress | None = None, extra: Mapping[str, Any] | None = None) -> Manifest:
        """All of it; the index last, with `extra` in it."""
        for shard, name in enumerate(self.manifest.digests):
            shelf.put(name, self.shard(shard))
            if told is not None:
                told(self.manifest.layout.bounds(shard)[1])
        manifest = replace(self.manifest, extra={**self.manifest.extra, **(extra or {})})
        shelf.put_index(encode_index(manifest))
        return manifest


def packed(source: Source, extra: Mapping[str, Any] | None = None, shard_bytes: int = SHARD_BYTES) -> Packed:
    """A source as shards. One that is not packed is read once for the digests, and again for each shard."""
    if isinstance(source, PackedSource):
        return Packed(source.manifest, source.shard, source.get_range)
    layout = Layout.of(source.rows, source.columns, shard_bytes)

    def assembled(shard: int) -> memoryview:
        lo, hi = layout.bounds(shard)
        buffer = _Buffer(layout)
        buffer.add(source.read(lo, hi))
        return buffer.content()

    digests = tuple(digest(assembled(shard)) for shard in range(layout.shards))
    columns = [each for each in layout.columns if is_labels(each.name, each.dtype)]
    labels = {each.name: _told(found) for each in columns if (found := source.labels(each.name)) is not None}
    shards = {name: shard for shard, name in enumerate(digests)}
    last = lru_cache(1)(assembled)

    def get_range(key: str, lo: int, hi: int) -> bytes:
        return bytes(last(shards[key])[lo:hi])

    return Packed(Manifest(layout, digests, extra={**(extra or {}), "labels": labels}), assembled, get_range)


def pack(blocks: Iterable[Arrays], shelf: Shelf, extra: Mapping[str, Any], told: Progress | None = None) -> Manifest:
    """Blocks of rows, onto a shelf."""
    packer = Packer(shelf)
    for arrays in blocks:
        packer.add(arrays)
        if told is not None:
            told(packer.rows)
    return packer.finish(extra)


def open_folder(path: Path) -> PackedSource:
    """The data set that `Folder(path)` holds. Raises: ConfigError."""
    folder = Folder(path)
    try:
        raw = (path / INDEX).read_bytes()
    except OSError as error:
        raise ConfigError(f"data {path / INDEX}: cannot be read: {error.strerror}") from error
    return PackedSource(read_index(raw, str(path / INDEX)), folder.get_range)


def open_prefix(store: Store, prefix: str, where: str) -> PackedSource:
    """The data set that `Prefix(store, prefix)` holds. Raises: ConfigError."""
    return PackedSource(read_index(store.get(f"{prefix}{INDEX}"), where), Prefix(store, prefix).get_range)


def read_index(raw: bytes, where: str) -> Manifest:
    """Raises: ConfigError that names `where`."""
    try:
        manifest = parse_manifest(raw)
    except (ContractError, RecursionError) as error:
        raise ConfigError(f"data {where}: no index of a data set: {error}") from error
    odd = next((each for each in manifest.digests if not DIGEST.fullmatch(each)), None)
    if odd is not None:  # it becomes the name of a file, or of an object
        raise ConfigError(f"data {where}: no index of a data set: {ascii(odd)[:80]} is no shard's digest")
    return manifest


def _told(labels: Labels | None) -> list[int] | None:
    return None if labels is None else [labels.least, labels.least_row, labels.most, labels.most_row]
