"""`gradmux simulate`: one scheme, or auto, over a profile; one document for programs, one line per mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli.main import run
from orchestrator.delays import DelayProfile, save_profile

NAMES = {
    "scheme", "params", "workers", "jobs", "rounds", "delay", "load", "durations", "total_s", "waits", "dropped",
    "in_flight_mean", "in_flight_max", "billed_s",
}  # fmt: skip


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """Four workers, one of which takes 5 s in every other round."""
    path = tmp_path / "given.npz"
    delays_s = np.ones((40, 4))
    delays_s[::2, 1] = 5.0
    save_profile(DelayProfile(delays_s, load=0.0, slope_s=0.0), path)
    return str(path)


def test_json_has_the_names_of_the_contract(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", profile, "--scheme", "uncoded", "--jobs", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) >= NAMES
    assert told["durations"] == [5.0, 1.0, 5.0, 1.0]
    assert (told["total_s"], told["workers"], told["rounds"], told["delay"]) == (12.0, 4, 4, 0)


def test_parameters_by_letter_make_a_difference(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", profile, "--scheme", "gc", "-p", "s=1", "--jobs", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_s"] == 4.0


def test_auto_tells_what_it_chose_and_when(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", profile, "--scheme", "auto", "--jobs", "40", "--models", "1"]
    assert run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) >= NAMES | {"segments"}
    assert told["segments"][0]["choice"]["reason"] == "measures"
    assert (told["segments"][0]["begin"], told["segments"][-1]["end"]) == (0, 40)
    assert 40 <= told["total_s"] < 80, "half of the rounds would take 5 s"
    assert run(words) == 0
    assert "what it chose" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scheme", "gcc"], "unknown scheme 'gcc'"),
        (["--scheme", "gc"], "gc needs s (stragglers)"),
        (["--scheme", "gc", "-p", "s"], "must be KEY=VALUE"),
        (["--scheme", "uncoded", "--workers", "9"], "the profile has 4 workers"),
        (["--scheme", "auto", "-p", "s=1"], "auto chooses scheme and parameters itself"),
        (["--scheme", "auto", "--wait", "mu"], "auto chooses scheme and parameters itself"),
        (["--scheme", "auto", "--jobs", "10", "--models", "4"], "a multiple of the 4 models"),
    ],
)
def test_mistakes_are_told_in_one_line(
    profile: str, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert run(["simulate", profile, *words]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1
