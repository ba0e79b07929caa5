"""Rows, whichever way they are read; caches within their bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradmux.lambda_worker.cache import DiskCache, MemoryCache
from gradmux.lambda_worker.contract import ContractError, Rows
from gradmux.lambda_worker.data import DataError, Dataset
from gradmux.lambda_worker.layout import Manifest, encode_manifest, parse_manifest
from gradmux.lambda_worker.objects import MemoryObjects, MissingObject, StoreError
from gradmux.lambda_worker.shards import PIECE_BYTES
from tests.lambda_worker import workbench

ROWS = 50
GENERATOR = np.random.default_rng(1)
ARRAYS = {
    "x.0": GENERATOR.normal(size=(ROWS, 2, 3)).astype("f4"),
    "x.1": GENERATOR.integers(0, 200, size=(ROWS, 4)).astype("u1"),
    "x.2": GENERATOR.normal(size=ROWS),
    "y": GENERATOR.integers(0, 9, size=ROWS).astype("i4"),
}


def stored(arrays: dict[str, np.ndarray] = ARRAYS, shard_rows: int = 16) -> tuple[Manifest, MemoryObjects]:
    manifest, found = workbench.stored(arrays, shard_rows)
    objects = MemoryObjects()
    objects.objects.update(found)
    return manifest, objects


def dataset(directory: Path, whole: bool, limit: int = 10**6) -> tuple[Dataset, MemoryObjects]:
    manifest, objects = stored()
    cache = DiskCache(directory / "cache", limit)
    return Dataset(manifest, objects, cache, whole_bytes=10**9 if whole else 0), objects


@given(
    rows=st.one_of(
        st.tuples(st.integers(0, ROWS - 1), st.integers(1, ROWS)), st.lists(st.integers(0, ROWS - 1), min_size=1)
    )
)
def test_rows_are_the_same_whole_and_by_ranges(tmp_path_factory: pytest.TempPathFactory, rows: object) -> None:
    wanted = Rows(rows[0], min(rows[0] + rows[1], ROWS)) if isinstance(rows, tuple) else Rows.of(rows)
    ids = wanted.indices()
    for whole in (True, False):
        data, _ = dataset(tmp_path_factory.mktemp("data"), whole)
        (x, tokens, precise), y = data.read(wanted)
        assert np.array_equal(x.numpy(), ARRAYS["x.0"][ids])
        assert np.array_equal(tokens.numpy(), ARRAYS["x.1"][ids])
        assert np.array_equal(precise.numpy(), ARRAYS["x.2"][ids].astype("f4"))
        assert np.array_equal(y.numpy(), ARRAYS["y"][ids])
        assert (x.dtype, tokens.dtype, y.dtype) == (torch.float32, torch.uint8, torch.int64)


def test_floats_come_in_the_models_dtype_and_memory_is_aligned_and_private(tmp_path: Path) -> None:
    for whole in (True, False):
        data, _ = dataset(tmp_path / str(whole), whole)
        (x, _, precise), _ = data.read(Rows(3, 9), torch.float64)
        assert x.dtype is torch.float64
        assert np.array_equal(precise.numpy(), ARRAYS["x.2"][3:9])
        (single, tokens, _), _ = data.read(Rows(3, 9))
        assert single.data_ptr() % 64 == 0
        single.zero_()
        tokens.zero_()
        assert np.array_equal(data.read(Rows(3, 9))[0][0].numpy(), ARRAYS["x.0"][3:9])


def test_without_a_target_the_first_input_is_it(tmp_path: Path) -> None:
    manifest, objects = stored({"x": ARRAYS["x.1"]})
    text, target = Dataset(manifest, objects, DiskCache(tmp_path, 10**6)).read(Rows(0, 4))
    assert target is text


@pytest.mark.parametrize("kind", ["f2", "f8", "i1", "i2", "i8", "u1", "?"])
def test_every_kind_of_array(tmp_path: Path, kind: str) -> None:
    array = GENERATOR.integers(0, 2, size=(ROWS, 3)).astype(kind)
    manifest, objects = stored({"x": array, "y": array[:, 0].copy()})
    for whole in (0, 10**9):
        x, y = Dataset(manifest, objects, DiskCache(tmp_path, 10**6), whole).read(Rows.of([4, 1]))
        assert np.array_equal(x.numpy(), array[[4, 1]].astype(x.numpy().dtype))
        assert np.array_equal(y.numpy(), array[[4, 1], 0].astype(y.numpy().dtype))


@pytest.mark.parametrize("rows", [Rows(45, 51), Rows.of([50]), Rows.of([2**32 - 1])])
def test_rows_that_are_not_there(tmp_path: Path, rows: Rows) -> None:
    data, objects = dataset(tmp_path, whole=False)
    with pytest.raises(DataError, match="has 50"):
        data.read(rows)
    assert not objects.reads


def test_a_small_data_set_is_read_once(tmp_path: Path) -> None:
    data, objects = dataset(tmp_path, whole=True)
    data.read(Rows(0, ROWS))
    first = len(objects.reads)
    data.read(Rows.of([3, 38]))
    assert first == len(objects.objects) == 4
    assert len(objects.reads) == first


def test_a_damaged_shard_is_named_and_not_kept(tmp_path: Path) -> None:
    data, objects = dataset(tmp_path, whole=True)
    (key, *_), whole = list(objects.objects), dict(objects.objects)
    objects.objects[key] = b"\1" + objects.objects[key][1:]
    with pytest.raises(StoreError, match=f"{key}.*changed"):
        data.read(Rows(0, 1))
    objects.objects.update(whole)
    (x, _, _), _ = data.read(Rows(0, 1))
    assert np.array_equal(x.numpy(), ARRAYS["x.0"][:1])


def test_neighbouring_rows_are_read_in_one_request_and_distant_ones_are_not(tmp_path: Path) -> None:
    rows = 100_000
    table = np.arange(rows, dtype="i8")
    manifest, objects = stored({"x": table}, rows)
    data = Dataset(manifest, objects, DiskCache(tmp_path, 10**6), whole_bytes=0)
    wanted = [90_000, 5, 7, 5, 90_001]
    x, _ = data.read(Rows.of(wanted))
    assert x.tolist() == wanted
    assert sorted((lo, hi) for _, lo, hi in objects.reads) == [(40, 64), (720_000, 720_016)]


def test_a_full_disk_falls_back_to_ranges(tmp_path: Path) -> None:
    """The cache's directory cannot be made: a file is in its place."""
    (tmp_path / "cache").write_bytes(b"in the way")
    data, _ = dataset(tmp_path, whole=True)
    (x, _, _), _ = data.read(Rows(1, 3))
    assert np.array_equal(x.numpy(), ARRAYS["x.0"][1:3])


def test_a_data_set_larger_than_the_cache_is_read_by_ranges(tmp_path: Path) -> None:
    data, objects = dataset(tmp_path, whole=True, limit=100)
    data.read(Rows(0, 1))
    assert sum(hi - lo for _, lo, hi in objects.reads) < 100


def test_a_large_part_of_a_shard_is_read_in_pieces(tmp_path: Path) -> None:
    table = np.arange(3 << 20, dtype="i8")
    manifest, objects = stored({"x": table}, len(table))
    data = Dataset(manifest, objects, DiskCache(tmp_path, 10**6), whole_bytes=0)
    x, _ = data.read(Rows(1000, len(table)))
    assert np.array_equal(x.numpy(), table[1000:])
    assert max(hi - lo for _, lo, hi in objects.reads) <= PIECE_BYTES
    assert sum(hi - lo for _, lo, hi in objects.reads) == 8 * (len(table) - 1000)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    for whole in (True, False):
        data, objects = dataset(tmp_path / str(whole), whole)
        key = data.manifest.key(1)
        del objects.objects[key]
        with pytest.raises(MissingObject, match=key):
            data.read(Rows(20, 21))


def test_manifests_come_back() -> None:
    manifest, _ = stored()
    assert parse_manifest(encode_manifest(manifest)) == manifest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", 51 + 16),
        ("rows", True),
        ("shard_rows", 0),
        ("arrays", [{"name": "x", "dtype": "complex64", "shape": []}]),
        ("arrays", [{"name": "x", "dtype": "int8", "shape": [0]}]),
        ("arrays", [{"name": "x", "dtype": "int8"}]),
        ("arrays", [{"name": "z", "dtype": "int8", "shape": []}]),
        ("arrays", [{"name": "y", "dtype": "int8", "shape": []}]),
        ("arrays", [{"name": "x", "dtype": "int8", "shape": []}] * 2),
        ("arrays", 3),
        ("shards", []),
        ("place", None),
        ("extra", []),
        ("format", "another"),
        ("more", 1),
    ],
)
def test_malformed_manifests(field: str, value: object) -> None:
    document = orjson.loads(encode_manifest(stored()[0]))
    document[field] = value
    with pytest.raises(ContractError, match="manifest"):
        parse_manifest(orjson.dumps(document))
    with pytest.raises(ContractError):
        parse_manifest(orjson.dumps(document)[:-5])


# --- caches ------------------------------------------------------------------------------------------------------


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), max_size=30))
def test_the_disk_cache_keeps_its_bound_and_gives_the_right_bytes(
    tmp_path_factory: pytest.TempPathFactory, uses: list[tuple[int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("cache")
    cache = DiskCache(directory, 100)
    for name, size in uses:
        body = bytes([name]) * size
        found = cache.open(f"key-{name}", size, lambda body=body: [body[:5], body[5:]])
        assert found is not None
        assert bytes(found) == body
        assert cache.used_bytes <= 100
        assert on_disk(directory) == cache.used_bytes


def test_the_least_recently_used_file_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    fetched: list[str] = []

    def use(key: str) -> None:
        cache.open(key, 40, lambda: [fetched.append(key) or b"x" * 40])

    for key in ("a", "b", "a", "c", "a", "b"):
        use(key)
    assert fetched == ["a", "b", "c", "b"]


def test_what_does_not_fit_is_not_fetched(tmp_path: Path) -> None:
    def never() -> list[bytes]:
        raise AssertionError("fetched")

    assert DiskCache(tmp_path, 100).open("key", 101, never) is None


def test_a_restarted_process_adopts_whole_files_only(tmp_path: Path) -> None:
    DiskCache(tmp_path, 100).open("a", 40, lambda: [b"a" * 40])
    (tmp_path / "half.123.part").write_bytes(b"x" * 90)
    again = DiskCache(tmp_path, 100)
    assert again.used_bytes == on_disk(tmp_path) == 40
    found = again.open("a", 40, lambda: [b"b" * 40])
    assert found is not None
    assert bytes(found) == b"a" * 40
    assert DiskCache(tmp_path, 30).used_bytes == 0
    assert on_disk(tmp_path) == 0


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> list[bytes]:
        raise MissingObject("gone")

    cache = DiskCache(tmp_path, 100)
    with pytest.raises(MissingObject):
        cache.open("a", 40, broken)
    assert not list(tmp_path.iterdir())
    assert cache.used_bytes == 0


def test_a_file_that_somebody_deleted_is_fetched_again(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    cache.open("a", 4, lambda: [b"aaaa"])
    for path in tmp_path.iterdir():
        path.unlink()
    found = cache.open("a", 4, lambda: [b"aaaa"])
    assert found is not None
    assert bytes(found) == b"aaaa"


def test_writing_into_a_map_does_not_reach_the_file(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    found = cache.open("a", 4, lambda: [b"aaaa"])
    assert found is not None
    found[:] = 0
    again = cache.open("a", 4, lambda: [])
    assert again is not None
    assert bytes(again) == b"aaaa"


def test_the_memory_cache_is_bounded_by_count_and_bytes() -> None:
    cache: MemoryCache[str] = MemoryCache(limit=3, limit_bytes=10)
    made: list[str] = []

    def use(key: str, size: int) -> str:
        return cache.get(key, lambda: (made.append(key) or key.upper(), size))

    for key in ("a", "b", "c", "a", "d", "a", "b"):
        assert use(key, 1) == key.upper()
    assert made == ["a", "b", "c", "d", "b"]
    assert use("huge", 99) == "HUGE"
    assert len(cache) == 1
    with pytest.raises(MissingObject):
        cache.get("e", missing)
    assert len(cache) == 1


def missing() -> tuple[str, int]:
    raise MissingObject("e")
