"""`gradmux simulate`: one scheme, or auto, over a profile; one document for programs, one line per mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gradmux.cli.main import run
from gradmux.orchestrator.delays import DelayProfile, save_profile
from gradmux.orchestrator.schemes.registry import REGISTRY
from tests.orchestrator import published

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


def test_it_tells_how_exact_the_decodes_were(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = {}
    for words in (["gc", "-p", "s=1", "-p", "code=cyclic"], ["fastest-k", "-p", "k=3"]):
        assert run(["simulate", profile, "--scheme", *words, "--jobs", "4", "--json"]) == 0
        told[words[0]] = json.loads(capsys.readouterr().out)["decode"]
    assert 0 < told["gc"]["max_residual"] < 1e-12
    assert told["gc"]["max_amplification"] > 1
    assert told["fastest-k"]["max_residual"] >= 1, "an estimate, and declared so"
    assert run(["simulate", profile, "--scheme", "fastest-k", "-p", "k=3", "--jobs", "4"]) == 0
    assert "residual at most 1.0e+00, amplification at most" in capsys.readouterr().out


@pytest.mark.parametrize("name", REGISTRY)
def test_every_scheme_is_simulated_by_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example that is drawn of it, over answers of 1 s, and half a second more for a whole batch."""
    sample = REGISTRY[name].sample
    assert sample is not None
    path, parameters = tmp_path / "even.npz", [word for k, v in sample.params.items() for word in ("-p", f"{k}={v}")]
    save_profile(DelayProfile(np.ones((9, sample.workers)), load=0.0, slope_s=0.5), path)
    words = ["--models", str(sample.models), "--jobs", str(4 * sample.models), "--json"]
    assert run(["simulate", str(path), "--scheme", name, *parameters, *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["scheme"], told["jobs"]) == (name, 4 * sample.models)
    assert 0 < told["load"] <= int(sample.params.get("K", 1)), "of a stretch, whole batches"
    slowest_s = 1 + 0.5 * told["load"]
    assert slowest_s <= told["total_s"] <= told["rounds"] * slowest_s + 1e-9
    assert told["billed_s"] >= told["jobs"] / told["workers"]


def test_the_in_flight_cap_holds_rounds_up(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """gc needs no slow worker. A cap of one call holds it up when that worker is late twice, a cap of none whenever."""
    words = ["simulate", profile, "--scheme", "gc", "-p", "s=1", "--jobs", "4", "--json"]
    durations = []
    for option in ([], ["--in-flight-cap", "0.25"], ["--in-flight-cap", "0"]):
        assert run([*words, *option]) == 0
        durations.append(json.loads(capsys.readouterr().out)["durations"])
    assert durations == [[1.0] * 4, [1.0, 1.0, 3.0, 1.0], [5.0, 1.0, 5.0, 1.0]]


def test_late_answers_count_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Job 0 lacks one answer after round 0, at 1 s; worker 0 brings it at 1.5 s, or repeats it in round 1, in 5 s."""
    delays_s = np.ones((3, 4))
    delays_s[0, :2], delays_s[1, 0] = 1.5, 5.0
    path = tmp_path / "late.npz"
    save_profile(DelayProfile(delays_s, load=0.0, slope_s=0.0), path)
    parameters = [word for each in ("B=1", "W=2", "lambda=2", "code=cyclic") for word in ("-p", each)]
    totals = []
    for option in ("--harvest-late", "--no-harvest-late"):
        assert run(["simulate", str(path), "--scheme", "sr-sgc", *parameters, "--jobs", "2", "--json", option]) == 0
        totals.append(json.loads(capsys.readouterr().out)["total_s"])
    assert totals == [2.0, 6.0]


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
        (["--scheme", "gc", "-p", "s=1", "--wait", "mu", "--in-flight-cap", "0.1"], "whatever is in flight"),
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


def test_invoke_idle_plays_as_the_published_simulator_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(case for case in published.CASES if case["id"] == "m-32-b2w4l32")
    path = tmp_path / "formula.npz"
    save_profile(DelayProfile(published.delays_s(case), load=0.0, slope_s=0.0), path)
    words = ["simulate", str(path), "--scheme", "m-sgc", "-p", "code=cyclic", "--jobs", str(case["jobs"]), "--json"]
    words += [f"-p{letter}={value}" for letter, value in case["params"].items()]
    words += ["--wait=mu", f"--mu={case['mu']}", "--wait-out=all", "--straggler-model=bursty", "--no-harvest-late"]
    assert run([*words, "--invoke-idle"]) == 0
    assert json.loads(capsys.readouterr().out)["durations"] == pytest.approx(case["durations"], abs=1e-9)
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["durations"][-1] == 0, "a round without tasks"


def test_invoke_idle_is_refused_where_no_round_waits_for_idle_workers(profile: str) -> None:
    assert run(["simulate", profile, "--scheme", "uncoded", "--invoke-idle"]) == 2


def test_repeat_tells_the_spread_over_seeds(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["simulate", profile, "--scheme", "uncoded", "--jobs", "6", "--workers", "3"]
    words = [*one, "--repeat", "5", "--seed", "2"]
    assert run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["seed"] for each in told["runs"]] == [2, 3, 4, 5, 6]
    totals = [each["total_s"] for each in told["runs"]]
    assert len(set(totals)) > 1
    spread = told["spread"]["total_s"]
    assert spread["mean"] == pytest.approx(np.mean(totals))
    assert spread["sd"] == pytest.approx(np.std(totals, ddof=1))
    assert (spread["min"], spread["median"], spread["max"]) == (min(totals), np.median(totals), max(totals))
    assert run([*one, "--seed", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_s"] == totals[2]
    assert run(words) == 0
    assert "5 runs" in capsys.readouterr().out


def test_repeat_draws_a_generator_anew_and_names_the_runs_that_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "lambda-like", "--scheme", "uncoded", "--jobs", "3", "--repeat", "2", "--json"]
    assert run(words) == 0
    first, second = json.loads(capsys.readouterr().out)["runs"]
    assert first["total_s"] != second["total_s"], "of all 256 columns, only the draw differs"
    delays_s = np.ones((12, 8))
    delays_s[::3, :5] = np.inf
    save_profile(DelayProfile(delays_s, load=0.0, slope_s=0.0), tmp_path / "failing.npz")
    words = ["simulate", str(tmp_path / "failing.npz"), "--scheme", "uncoded", "--workers", "3", "--jobs", "9"]
    assert run([*words, "--repeat", "6", "--attempts", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stopped"]
    assert all("failed in 1 attempts" in each["reason"] for each in told["stopped"])
    assert run(["simulate", "lambda-like", "--scheme", "auto", "--repeat", "2"]) == 2
    assert "--repeat plays one scheme with fixed parameters" in capsys.readouterr().err
