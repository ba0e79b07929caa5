"""Tables: what is taken of them and what is refused, each in one line that names file and column."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.data import Dataset, load_dataset
from gradmux.orchestrator.training.taking import NOTHING, Declared, Pad

A, B, Y = [0.5, 1.5, 2.5, 3.5], [3, 4, 5, 6], [0, 1, 1, 0]


def table(folder: Path, columns: dict[str, Any], metadata: dict[str, str] | None = None) -> str:
    made = pa.table(columns)
    pq.write_table(made.replace_schema_metadata(metadata) if metadata else made, folder / "t.parquet")
    return str(folder / "t.parquet")


def refused(source: str, declared: Declared = NOTHING) -> str:
    with pytest.raises(ConfigError) as caught:
        load_dataset(source, declared=declared)
    text = str(caught.value)
    assert Path(source).name in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["index.parquet", "named_index.parquet"])
def test_what_pandas_wrote_as_its_index_is_no_feature(shared: Path, name: str) -> None:
    found = load_dataset(str(shared / "cases" / name))
    index = {"index.parquet": "__index_level_0__", "named_index.parquet": "id"}[name]
    assert f"left out: {index} (the index)" in found.told
    assert found.x.shape[1] == len(pq.read_schema(shared / "cases" / name).names) - 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("date.parquet", "column c holds dates (timestamp[us]), no numbers"),
        ("encrypted.npz", "x.npy is encrypted"),
        ("deflate64.npz", "x.npy is compressed by deflate64"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(shared: Path, name: str, words: str) -> None:
    assert words in refused(str(shared / "cases" / name))


def test_a_column_that_is_declared_is_taken_even_if_pandas_calls_it_the_index(tmp_path: Path) -> None:
    source = table(tmp_path, {"a": A, "id": B, "y": Y}, {"pandas": '{"index_columns": ["id"]}'})
    assert load_dataset(source).x.tolist() == [[each] for each in A]
    assert load_dataset(source, declared=Declared(inputs=["id"])).x.tolist() == [[each] for each in B]


def test_columns_of_several_kinds_stand_side_by_side(tmp_path: Path) -> None:
    kinds = {
        "real": A,
        "whole": B,
        "flag": [True, False, True, True],
        "money": [decimal.Decimal("1.25")] * 4,
        "code": pa.array([7, 7, 8, 8]).dictionary_encode(),
        "pair": [[1, 2], [3, 4], [5, 6], [7, 8]],
    }
    found = load_dataset(table(tmp_path, {**kinds, "label": Y}))
    assert found.x[1].tolist() == [1.5, 4, 0, 1.25, 7, 3, 4]
    assert found.told == "x from real, whole, flag, money, code, pair, y from label"
    assert found.y.dtype == np.int64


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a", "b", "c", "d"], "column c holds text (string)"),
        (pa.array(["a", "b", "a", "b"]).dictionary_encode(), "column c holds text (dictionary"),
        ([datetime.date(2026, 1, 1)] * 4, "column c holds dates (date32"),
        ([datetime.time(1)] * 4, "column c holds times (time64"),
        ([datetime.timedelta(1)] * 4, "column c holds times (duration"),
        ([b"a"] * 4, "column c holds bytes (binary)"),
        ([{"a": 1}] * 4, "column c holds records (struct"),
        ([["a"]] * 4, "column c holds text (list"),
        ([None] * 4, "column c holds nothing but missing values"),
        ([1.0, None, 2.0, 3.0], "column c has no value in row 1"),
        ([[1.0], [None], [2.0], [3.0]], "column c has no value in row 1"),
        ([1.0, 2.0, float("nan"), 3.0], "c: row 2 holds NaN"),
        ([1.0, 2.0, 1e300, 3.0], "c: row 2 holds 1e+300, more than float32 can hold"),
        ([[1], [1, 2], [3], [4]], "column c holds lists of different lengths (1 to 2): pad them"),
        (pa.array([1, 2, 3, 2**64 - 1], pa.uint64()), "c: row 3 holds 18446744073709551615, more than int64"),
        ([1, 2, 3, 2**24 + 1], "c holds whole numbers beyond 2^24"),
    ],
)
def test_a_column_of_no_use_is_named(tmp_path: Path, values: Any, words: str) -> None:
    text = refused(table(tmp_path, {"a": A, "c": values, "y": Y}))
    assert words in text
    assert load_dataset(table(tmp_path, {"a": A, "c": values, "y": Y}), declared=Declared(inputs=["a"])).rows == 4


def test_what_is_declared_decides(tmp_path: Path) -> None:
    source = table(tmp_path, {"a": A, "b": B, "c": Y, "w": [1.0, 2.0, 0.0, 1.0]})
    by_name = load_dataset(source, declared=Declared({"left": ["a", "b"], "right": "b"}, {"box": "c"}, "w"))
    assert by_name.x["left"].shape == (4, 2)
    assert by_name.x["right"].tolist() == B
    assert by_name.y["box"].tolist() == Y
    assert by_name.arrays["w"].tolist() == [1, 2, 0, 1]
    by_place = load_dataset(source, declared=Declared({"0": "b", "1": "a"}, "c"))
    assert [each.tolist() for each in by_place.x] == [B, A]
    assert "has no d; it has a, b, c, w" in refused(source, Declared("d", "c"))
    assert "expected columns of inputs and one of y, label, target" in refused(source)
    assert load_dataset(source, declared=Declared("a")).y is None


def test_lists_of_different_lengths_are_padded_at_the_end(tmp_path: Path) -> None:
    source = table(tmp_path, {"tokens": [[1], [2, 3], [], [4, 5, 6]], "y": Y})
    padded = load_dataset(source, declared=Declared("tokens", pad={"tokens": Pad(4, value=-1)}))
    assert padded.x.tolist() == [[1, -1, -1, -1], [2, 3, -1, -1], [-1] * 4, [4, 5, 6, -1]]
    masked = load_dataset(source, declared=Declared({"ids": "tokens"}, pad={"tokens": Pad(3, mask="mask")}))
    assert masked.x["ids"].tolist() == [[1, 0, 0], [2, 3, 0], [0, 0, 0], [4, 5, 6]]
    assert masked.x["mask"].sum(1).tolist() == [1, 2, 0, 3]
    assert masked.x["mask"].dtype == np.bool_
    assert "column tokens, row 3: 3 values, but length = 2" in refused(source, Declared(pad={"tokens": Pad(2)}))
    assert "mask is an input of its own" in refused(source, Declared("tokens", pad={"tokens": Pad(3, mask="m")}))
    assert "data.pad names words" in refused(source, Declared("tokens", pad={"words": Pad(3)}))


def test_files_of_other_columns_do_not_fit_together(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": A, "y": Y}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": B, "y": Y}), tmp_path / "2.parquet")
    with pytest.raises(ConfigError, match=r"do not fit together: x is float32 \(1,\) a row before and int64 \(1,\)"):
        load_dataset(str(tmp_path))
    pq.write_table(pa.table({"b": A, "y": Y}), tmp_path / "2.parquet")
    with pytest.raises(ConfigError, match=r"2\.parquet has no a"):
        load_dataset(str(tmp_path))


# --- CSV ---------------------------------------------------------------------------------------------------------

TYPES = {"a": "float32", "b": "int64", "y": "int64"}


def csv(folder: Path, text: str, encoding: str = "utf-8") -> str:
    (folder / "t.csv").write_text(text, encoding=encoding)
    return str(folder / "t.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_by_a_declared_schema(tmp_path: Path, encoding: str) -> None:
    source = csv(tmp_path, "a,name,b,y\n0.5,ann,3,0\n1.5,bob,4,1\n", encoding)
    found = load_dataset(source, declared=Declared(types=TYPES))
    assert found.x.tolist() == [[0.5, 3], [1.5, 4]]
    assert found.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "types", "words"),
    [
        ("a,b,y\n1,2,3\n", {}, 'data.types = { a = "float32" }; it has a, b, y'),
        ("a,b,y\n1,2,3\n", {**TYPES, "c": "bool"}, "has no column c, which data.types names"),
        ("a,b,y\n1,2,3\n", {**TYPES, "a": "date"}, "column a: type 'date', expected one of float32"),
        ("a,b,y\n1,2,3\n1,x,3\n", TYPES, "conversion error to int64: invalid value 'x'"),
        ("a,b,y\n1,,3\n", TYPES, "column b has no value in row 0"),
        ("a,b,y\n1,2\n", TYPES, "Expected 3 columns, got 2"),
        ("a,b,y\n", TYPES, "0 rows"),
        ("", TYPES, "Empty CSV file"),
    ],
)
def test_csv_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, types: dict[str, str], words: str) -> None:
    assert words in refused(csv(tmp_path, text), Declared(types=types))


# --- the whole way -----------------------------------------------------------------------------------------------


def test_a_large_table_goes_through_disk_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradmux.orchestrator.training.reading.SHARD_BYTES", 10_000)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    rows = np.arange(30_000.0).reshape(10_000, 3)
    source = table(tmp_path, {"a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2], "y": np.arange(10_000) % 7})
    found = load_dataset(source)
    assert list((tmp_path / "cache" / "spool").iterdir())
    np.testing.assert_array_equal(found.x, rows)
    assert found.digest == Dataset(rows.astype("f4"), np.arange(10_000) % 7).digest
    assert found.labels() == [(0, 0), (6, 6)]
    del found
    assert not list((tmp_path / "cache" / "spool").iterdir())
