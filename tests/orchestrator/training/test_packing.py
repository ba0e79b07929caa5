"""Shards: whatever the types, layouts and sizes of the rows, what was packed is what is read, and nothing else is held.

The worker's tests write shards the plain way; here they are packed as the client does it.
"""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from gradmux.lambda_worker.layout import parse_manifest
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.dataset import Array, Arrays, Dataset, MemorySource
from gradmux.orchestrator.training.packing import (
    INDEX,
    SHARDS,
    Folder,
    Packer,
    Prefix,
    open_folder,
    open_prefix,
    pack,
    packed,
)
from tests.lambda_worker import workbench

KINDS = ["f2", "f4", "f8", "u1", "i1", "i2", "i4", "i8", "?"]
SHARD_BYTES = 200


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Array]:
    """One to three arrays of as many rows, of any type, each laid out in memory in its own way."""
    rows = draw(st.integers(1, 40))
    made = {}
    for name in draw(st.sampled_from([("x",), ("x", "y"), ("x.0", "x.1", "y"), ("x.a", "x.b", "y.c")])):
        shape = (rows, *draw(array_shapes(min_dims=0, max_dims=2, max_side=4)))
        array = draw(arrays(draw(st.sampled_from(KINDS)), shape))
        made[name] = np.asfortranarray(array) if draw(st.booleans()) else array
    return made


def cut(rows: Arrays, sizes: list[int]) -> Iterator[Arrays]:
    lo, total = 0, len(next(iter(rows.values())))
    for size in [*sizes, total]:
        if lo < total:
            yield {name: each[lo : lo + size] for name, each in rows.items()}
        lo += size


def same(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        np.testing.assert_array_equal(one[name], other[name])


@given(columns(), st.lists(st.integers(1, 9)), st.data())
def test_rows_come_back_whatever_they_are(rows: dict[str, Array], sizes: list[int], data: st.DataObject) -> None:
    store, total = MemoryStore(), len(next(iter(rows.values())))
    packer = Packer(Prefix(store, "set/"), SHARD_BYTES)
    for block in cut(rows, sizes):
        packer.add(block)
    packer.finish({})
    source = open_prefix(store, "set/", "here")
    same(source.read(0, total), rows)
    wanted = np.array(data.draw(st.lists(st.integers(0, total - 1), min_size=1, max_size=9)))
    same(source.take(wanted), {name: each[wanted] for name, each in rows.items()})


@given(columns(), st.lists(st.integers(1, 9)))
def test_shards_do_not_depend_on_how_the_rows_came(rows: dict[str, Array], sizes: list[int]) -> None:
    """In blocks, at once from memory, or written the plain way: the same bytes, hence the same names."""
    whole = packed(MemorySource(rows), shard_bytes=SHARD_BYTES)
    store = MemoryStore()
    packer = Packer(Prefix(store, ""), SHARD_BYTES)
    for block in cut(rows, sizes):
        packer.add(block)
    manifest = packer.finish({})
    plain, objects = workbench.stored(rows, whole.manifest.layout.shard_rows)
    assert manifest.digests == whole.manifest.digests == plain.digests
    for shard, name in enumerate(manifest.digests):
        content = store.get(f"{SHARDS}{name}")
        assert bytes(whole.shard(shard)) == content == objects[f"data/{name}"]
        assert hashlib.sha256(content).hexdigest() == name
        assert whole.get_range(name, 1, 3) == content[1:3]


def test_a_folder_and_its_copy_are_the_same_set(tmp_path: Path) -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.array([3, 1, -100, 9, 1, 9])
    first = packed(MemorySource({"x": x, "y": y}))
    first.put(Folder(tmp_path / "a"))
    dataset = Dataset.over(open_folder(tmp_path / "a"))
    dataset.packed.put(Folder(tmp_path / "b"))
    assert (tmp_path / "a" / INDEX).read_bytes() == (tmp_path / "b" / INDEX).read_bytes()
    assert Dataset.over(open_folder(tmp_path / "b")).digest == first.digest == Dataset(x, y).digest
    assert dataset.labels() == Dataset(x, y).labels() == [(1, 1), (3, 9)]
    np.testing.assert_array_equal(dataset.x, x)


def test_labels_of_any_kind_of_target() -> None:
    x = np.zeros((3, 1), "f4")
    assert Dataset(x, np.array([-100, -100, -100])).labels() == []
    assert Dataset(x, np.array([0.5, 1.0, 2.0])).labels() == []
    assert Dataset(x).labels() == []
    assert Dataset(x, np.array([[4, 4], [4, 2], [7, 2]])).labels() == [(1, 2), (2, 7)]
    assert Dataset(x, (np.arange(3), np.arange(3))).labels() == []


def test_what_is_missing_or_cut_short_is_named(tmp_path: Path) -> None:
    manifest = packed(MemorySource({"x": np.zeros((9, 8))})).put(Folder(tmp_path))
    file = tmp_path / SHARDS / manifest.digests[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"shards/\w+: is shorter than .*index\.json says"):
        open_folder(tmp_path).read(0, 9)
    file.unlink()
    with pytest.raises(ConfigError, match=r"shards/\w+: cannot be read: No such file"):
        open_folder(tmp_path).read(0, 9)
    (tmp_path / INDEX).write_text("{}")
    with pytest.raises(ConfigError, match=r"index\.json: no index of a data set"):
        open_folder(tmp_path)


def test_one_shard_is_held_and_no_more(tmp_path: Path) -> None:
    """A set of ten shards goes through memory: what Python and numpy hold of it is 1.3 shards at most."""
    size, rows = 1 << 20, 10 * (1 << 20) // 64

    def blocks() -> Iterator[Arrays]:
        for lo in range(0, rows, 1000):
            yield {
                "x": np.full((min(1000, rows - lo), 15), lo, "f4"),
                "y": np.arange(lo, min(lo + 1000, rows), dtype="i4"),
            }

    class Checked(Folder):
        def put(self, name: str, content: memoryview) -> None:
            assert len(content) <= size
            super().put(name, content)

    tracemalloc.start()
    try:
        packer = Packer(Checked(tmp_path), size)
        for block in blocks():
            packer.add(block)
        packer.finish({})
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 1.3 * size
    assert len(list((tmp_path / SHARDS).iterdir())) == 10
    assert parse_manifest((tmp_path / INDEX).read_bytes()).layout.rows == rows


def test_an_index_without_its_shards_is_never_left(tmp_path: Path) -> None:
    """The index is written last: a writer that dies before leaves no data set."""

    def broken() -> Iterator[Any]:
        yield {"x": np.zeros((4, 3), "f4")}
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="gone"):
        pack(broken(), Folder(tmp_path), {})
    assert not (tmp_path / INDEX).exists()
