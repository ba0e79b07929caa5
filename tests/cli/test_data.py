"""`gradmux data`: what is told about rows, and that what was put can be named by a job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator.training.data import load_dataset
from tests.cli.conftest import Gradmux


def test_show_describes_the_built_in_digits(gradmux: Gradmux) -> None:
    document = gradmux("data", "show", "digits:test", "--json").document
    assert document["rows"] == 360
    assert document["x"] == {"shape": [64], "dtype": "float32", "bytes": 360 * 64 * 4}
    assert sum(document["classes"].values()) == 360
    assert "10, of" in gradmux("data", "show", "digits:test").out


def test_put_writes_a_file_that_jobs_can_name(gradmux: Gradmux, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "y.npy", np.array([0, 1, 1]))
    ran = gradmux("data", "put", tmp_path / "x.npy", tmp_path / "rows.npz")
    assert ran.code == 0
    loaded = load_dataset(str(tmp_path / "rows.npz"))
    assert loaded.x.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert loaded.y.tolist() == [0, 1, 1]


def test_put_packs_a_folder_that_jobs_can_name(gradmux: Gradmux, tmp_path: Path) -> None:
    ran = gradmux("data", "put", "digits:test", tmp_path / "set")
    assert ran.code == 0
    packed = load_dataset(str(tmp_path / "set"))
    assert packed.digest == load_dataset("digits:test").digest
    assert gradmux("data", "show", tmp_path / "set", "--json").document["rows"] == 360
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "set" / "shards").iterdir()}
    assert gradmux("data", "put", "digits:test", tmp_path / "set").code == 0
    assert {file: file.stat().st_mtime_ns for file in before} == before, "what is there is not written again"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    refused = gradmux("data", "put", "digits:test", tmp_path / "other")
    assert (refused.code, "is a folder with other files in it" in refused.err) == (2, True)


def test_what_is_declared_is_told(gradmux: Gradmux, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,w\n1,2,0,1\n3,4,1,0.5\n")
    types = 'types={a="float32", b="int64", c="int64", w="float32"}'
    ran = gradmux(
        "data",
        "show",
        tmp_path / "t.csv",
        "--json",
        *("--set", types),
        *("--set", 'inputs={l="a", r="b"}'),
        *("--set", "targets=c"),
        *("--set", "weights=w"),
    )
    assert ran.document["columns"] == ["x.l", "x.r", "y", "w"]
    assert ran.document["taken"] == "x.l from a, x.r from b, y from c"
    assert ran.document["x.r"] == {"shape": [], "dtype": "int64", "bytes": 16}
    wrong = gradmux("data", "show", tmp_path / "t.csv", "--set", "input=a")
    assert (wrong.code, "input" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "digits:tset"), "no such built-in data set"),
        (("show", "nowhere.npz"), "no such file"),
        (("put", "digits:test", "rows.csv"), "must be a folder, end in .npz, or begin with s3://"),
        (("put", "digits:test", "nowhere/rows.npz"), "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line(gradmux: Gradmux, words: tuple[str, ...], message: str) -> None:
    ran = gradmux("data", *words)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_bucket_without_credentials_is_a_failed_preflight(gradmux: Gradmux, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    ran = gradmux("data", "show", "s3://some-bucket/rows")
    assert ran.code == 3
    assert "credentials" in ran.err
