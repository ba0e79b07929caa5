"""Profiles come back from files as they went; what is no profile is refused in one line that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator.delays import DelayProfile, generate, load_profile, save_profile
from gradmux.orchestrator.errors import ConfigError

FAILING = DelayProfile(
    np.array([[0.1, np.inf, 1 / 3], [2e-9, 1e6, 0.3]]),
    load=0.25,
    slope_s=-1.5,
    base_load=0.5,
    cold=np.array([[True, False, False], [False, False, True]]),
    name="two rounds",
)


def test_npz_keeps_everything(tmp_path: Path) -> None:
    save_profile(FAILING, tmp_path / "p.npz")
    read = load_profile(tmp_path / "p.npz")
    assert read.same_as(FAILING)
    assert read.name == "two rounds"


def test_npz_keeps_that_a_slope_was_not_measured(tmp_path: Path) -> None:
    save_profile(DelayProfile(np.ones((2, 2))), tmp_path / "p.npz")
    assert load_profile(tmp_path / "p.npz").slope_s is None


def test_csv_keeps_the_delays_to_the_bit(tmp_path: Path) -> None:
    save_profile(FAILING, tmp_path / "p.csv")
    read = load_profile(tmp_path / "p.csv")
    assert np.array_equal(read.delays_s, FAILING.delays_s)
    assert (read.name, read.load) == ("p", 0.0)
    assert not read.cold.any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("worker 0,worker 1\n1,2\n", [[1, 2]]),
        ("1,\n inf , 4 \n", [[1, np.inf], [np.inf, 4]]),
        ("\ufeff1,2\r\n\r\n3,4", [[1, 2], [3, 4]]),
        ("7\n8\n", [[7], [8]]),
    ],
)
def test_csv_with_and_without_a_header_and_with_failures(
    tmp_path: Path, text: str, expected: list[list[float]]
) -> None:
    (tmp_path / "p.csv").write_text(text, encoding="utf-8")
    assert load_profile(tmp_path / "p.csv").delays_s.tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3\n", r"p.csv, line 2: 1 delays, but the first round has 2"),
        ("1,2\n3,fast\n", r"p.csv, line 2: 'fast' is not a delay in seconds"),
        ("a,b\n", r"p.csv holds no delays"),
        ("", r"p.csv holds no delays"),
        ("1,-2\n", r"1 of 2 delays are negative, the first in round 0, worker 1"),
        ("1,nan\n", r"1 of 2 delays are not a number"),
        (",\n,\n", r"failed invocations only"),
    ],
)
def test_a_csv_that_is_no_profile(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_profile(tmp_path / "p.csv")


def test_files_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "zip.npz").write_bytes(b"PK\x03\x04 and then nothing of the kind")
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe\xfa")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    np.savez(tmp_path / "text.npz", delays=np.array([["a"]]))
    np.savez(tmp_path / "pickled.npz", delays=np.array([[None]]))
    np.savez(tmp_path / "loads.npz", delays=np.ones((1, 1)), load=np.ones(2))
    for name, message in {
        "zip.npz": "not a readable .npz",
        "latin.csv": "not a readable CSV",
        "other.npz": "has no array `delays`; it has x",
        "text.npz": "`delays` must be numbers",
        "pickled.npz": "not a readable .npz",
        "loads.npz": "`load` must be one number",
        "absent.npz": "no delay profile at",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_profile(tmp_path / name)


def test_unknown_suffixes_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.xlsx").write_bytes(b"")
    with pytest.raises(ConfigError, match="xlsx"):
        load_profile(tmp_path / "p.xlsx")
    with pytest.raises(ConfigError, match=r"written as \.npz or \.csv"):
        save_profile(FAILING, tmp_path / "p.json")
    with pytest.raises(ConfigError, match="there is no folder"):
        save_profile(FAILING, tmp_path / "nowhere" / "p.npz")


def test_a_count_of_failures_is_not_a_matrix_of_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", delays=np.ones((2, 2), dtype=np.float32), failed=np.array(3), load=np.array(0.5))
    read = load_profile(tmp_path / "p.npz")
    assert not read.failed.any()
    assert read.load == 0.5


def test_measured_traces_are_read(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "profiles").glob("*.npz")):
        profile = load_profile(path)
        with np.load(path) as raw:
            assert np.array_equal(profile.delays_s, raw["delays"].astype(np.float64))
            assert profile.load == float(raw["load"])
        save_profile(profile, tmp_path / path.name)
        assert load_profile(tmp_path / path.name).same_as(profile)


def test_a_generated_profile_survives_the_file(tmp_path: Path) -> None:
    profile = generate("persistent", rounds=5, workers=16, seed=1)
    save_profile(profile, tmp_path / "p.npz")
    assert load_profile(tmp_path / "p.npz").same_as(profile)
