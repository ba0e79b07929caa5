"""`gradmux tune`: tables for people, one document for programs, one line per mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmux.cli.main import run

QUICK = ["--jobs", "16", "--slope", "1", "--resamples", "3", "--workers", "4,8"]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "measured.npz"
    delays = np.random.default_rng(0).lognormal(0.0, 0.5, (20, 12))
    np.savez(path, delays=delays, load=0.1)
    return path


def test_json_is_one_document_with_the_names_of_the_contract(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(profile), *QUICK, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    best = {"scheme", "params", "workers", "total_s", "load", "in_flight_max", "billed_s", "cost_usd"}
    assert best <= set(told["best"])
    assert {"choices", "pareto", "baselines", "evaluated", "elapsed_s"} <= set(told)
    assert set(told["baselines"]) == {"uncoded", "independent", "backup", "map", "here"}
    assert told["best"]["workers"] in (4, 8)


def test_auto_finds_the_number_of_workers(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where work costs no time one worker is best, nobody has to be waited for; where it costs much, all there are."""

    def best(slope: str, *more: str) -> dict[str, Any]:
        base = ["--jobs", "16", "--resamples", "0", "--schemes", "uncoded", "--slope", slope]
        assert run(["tune", str(profile), *base, *more, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["best"]
        return found

    for slope, workers, more in (("0", 1, ()), ("10", 12, ()), ("10", 6, ("--concurrency", "6"))):
        chosen = best(slope, "--workers", "auto", *more)
        assert chosen["workers"] == workers
        assert chosen == best(slope, *more), "what is done unless somebody says otherwise"
        assert chosen == best(slope, "--workers", str(workers), *more)
        for other in {1, 3, 6, 12} - {workers} if not more else {1, 3}:
            assert chosen["total_s"] < best(slope, "--workers", str(other), *more)["total_s"]


def test_tables_and_a_picture(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "front.svg"
    assert run(["tune", str(profile), *QUICK, "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    for text in ("chosen by the bill and $10 an hour", "by hand", "independent", "parameter sets", "cross-validation"):
        assert text in out
    assert picture.read_text().lstrip().startswith("<?xml")


def test_a_note_is_made_of_what_to_doubt(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(profile), "--jobs", "8", "--resamples", "0", "--workers", "4", "--schemes", "uncoded"]) == 0
    assert "--slope" in capsys.readouterr().err


def test_late_answers_can_be_left_out(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The papers' rule is evaluated without them, which is worth a note unless they were left out anyhow."""
    words = ["tune", str(profile), *QUICK, "--schemes", "sr-sgc", "--wait", "mu"]
    notes = []
    for option in ("--harvest-late", "--no-harvest-late"):
        assert run([*words, option]) == 0
        notes.append("harvest_late" in capsys.readouterr().err)
    assert notes == [True, False]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--workers", "many"], "must be auto, or whole numbers"),
        (["--workers", "99"], "workers = 99: the profile has 12 only"),
        (["--workers", "9", "--concurrency", "8"], "workers = 9 do not fit concurrency = 8"),
        (["--max-load", "0.2"], "nothing satisfies that"),
        (["--schemes", "agx"], "unknown scheme 'agx'"),
        (["--wait", "mu", "--in-flight-cap", "0.1"], "closes rounds whatever is in flight"),
        (["--plot", "front.txt"], "a picture is written as .png or .svg"),
    ],
)
def test_mistakes_are_told_in_one_line(
    profile: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    base = ["--jobs", "8", "--resamples", "0", "--slope", "1"]
    assert run(["tune", str(profile), *base, *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.strip().splitlines()) == 1


def test_prices_that_are_not_there_are_no_list_prices(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", str(profile), *QUICK, "--prices", str(tmp_path / "nope.toml")]) == 2
    assert "nope.toml' does not exist" in capsys.readouterr().err


def test_how_much_is_tried_is_told_before(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", str(profile), *QUICK, "--json"]) == 0
    told = capsys.readouterr()
    played = 2 * 4  # m-sgc with lambda = n: two n, four windows
    tried = json.loads(told.out)["evaluated"] - 1 - played  # what fits itself to the delays is played, not tried
    assert told.err.splitlines() == [
        f"trying {tried} parameter sets on up to 8 workers, 16 jobs each",
        f"playing {played} parameter sets by the loop, for 30 s at most",
    ]
    assert run(["tune", str(profile), *QUICK, "--json", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
