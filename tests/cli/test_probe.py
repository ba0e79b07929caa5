"""`gradmux probe` over real workers: it finds the injected delays, and writes a profile that can be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator.delays.formats import load_profile, save_profile
from gradmux.orchestrator.delays.profile import DelayProfile
from tests.cli.conftest import Gradmux

JOB = """
[cluster]
workers = 4
[scheme]
name = "uncoded"
[data]
train = "digits:train"
batch_size = 256
[training]
steps = 1
[[models]]
name = "linear"
factory = "torch.nn:Linear"
args = { in_features = 64, out_features = 10 }
[emulator]
delays = "given.npz"
"""


def test_the_injected_delay_and_slope_are_measured(tmp_path: Path, gradmux: Gradmux) -> None:
    given = tmp_path / "given.npz"
    save_profile(DelayProfile(np.full((6, 4), 0.1), load=0.0, slope_s=0.8), given)
    job, out = tmp_path / "job.toml", tmp_path / "measured.npz"
    job.write_text(JOB.replace("given.npz", str(given)))
    told = gradmux("--json", "probe", job, "--loads", "0.1,0.6", "--rounds", "3", "--out", out)
    assert told.code == 0, told.err
    found = told.document
    assert found["slope_s"] > 0
    assert [row["failed"] for row in found["loads"]] == [0, 0]
    assert all(row["median_s"] >= 0.1 + 0.8 * row["load"] for row in found["loads"]), "never before the injected delay"
    profile = load_profile(out)
    assert profile.delays_s.shape == (6, 4)
    assert profile.load == 0.1


def test_loads_that_are_no_numbers_get_one_line(tmp_path: Path, gradmux: Gradmux) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB.replace("given.npz", "none"))
    told = gradmux("probe", job, "--loads", "a,b", "--out", tmp_path / "x.npz")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "give numbers with commas between" in told.err


@pytest.mark.parametrize(
    ("out", "message"),
    [("nowhere/x.npz", "there is no folder"), ("x.txt", "written as .npz or .csv"), ("taken.npz", "is a directory")],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, gradmux: Gradmux, out: str, message: str
) -> None:
    job, taken = tmp_path / "job.toml", tmp_path / "taken.npz"
    job.write_text(JOB.replace("given.npz", "none"))
    taken.mkdir()
    told = gradmux("probe", job, "--out", tmp_path / out)
    assert (told.code, told.err.count("\n")) == (2, 1), "one line, and none of the emulator's"
    assert message in told.err
