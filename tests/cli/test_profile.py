"""`gradmux profile` and `simulate`: files in, files and numbers out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator.delays.formats import load_profile
from tests.cli.conftest import Gradmux

DOCUMENTED = {
    *("scheme", "params", "workers", "jobs", "rounds", "delay", "load", "durations", "total_s", "waits", "dropped"),
    *("in_flight_mean", "in_flight_max", "billed_s"),
}


@pytest.fixture
def csv_profile(tmp_path: Path) -> Path:
    """Three workers, two rounds; worker 2 is slow, then fails."""
    path = tmp_path / "delays.csv"
    path.write_text("1.0,2.0,9.0\n1.0,3.0,inf\n")
    return path


def test_convert_keeps_every_delay(gradmux: Gradmux, csv_profile: Path, tmp_path: Path) -> None:
    target = tmp_path / "delays.npz"
    ran = gradmux("profile", "convert", csv_profile, target, "--json")
    assert ran.code == 0
    assert (ran.document["rounds"], ran.document["workers"], ran.document["failed"]) == (2, 3, 1)
    assert load_profile(target).delays_s.tolist() == [[1.0, 2.0, 9.0], [1.0, 3.0, np.inf]]


def test_generate_is_repeatable_and_takes_parameters(gradmux: Gradmux, tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    for target in (first, second):
        words = (
            "profile",
            "generate",
            "bursty",
            target,
            "--rounds",
            "4",
            "--workers",
            "5",
            "-p",
            "base_s=3",
            "--seed",
            "1",
        )
        assert gradmux(*words).code == 0
    assert load_profile(first).delays_s.tolist() == load_profile(second).delays_s.tolist()
    assert load_profile(first).delays_s.min() >= 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bursty", "x.npz", "-p", "base=3"), "bursty has no parameter 'base'"),
        (("bursty", "x.npz", "-p", "base_s=fast"), "-p base_s=fast: must be a number"),
        (("bursty", "x.npz", "-p", "base_s"), "-p base_s: must be KEY=VALUE"),
        (("lunar", "x.npz"), "no delay generator is called 'lunar'"),
        (("bursty", "nowhere/x.npz"), "there is no folder nowhere"),
    ],
)
def test_wrong_generators(gradmux: Gradmux, words: tuple[str, ...], message: str) -> None:
    ran = gradmux("profile", "generate", *words)
    assert ran.code == 2
    assert message in ran.err


def test_simulate_json_has_the_documented_fields(gradmux: Gradmux, csv_profile: Path) -> None:
    ran = gradmux("simulate", csv_profile, "--scheme", "uncoded", "--jobs", "1", "--json")
    assert ran.code == 0
    assert set(ran.document) >= DOCUMENTED
    assert ran.document["durations"] == [9.0]
    assert ran.document["billed_s"] == 12.0


def test_simulate_accepts_letters_and_long_names(gradmux: Gradmux, csv_profile: Path) -> None:
    letter = gradmux("simulate", csv_profile, "--scheme", "gc", "-p", "s=2", "--jobs", "1", "--json").document
    name = gradmux("simulate", csv_profile, "--scheme", "gc", "-p", "stragglers=2", "--jobs", "1", "--json").document
    assert letter == name
    assert letter["durations"] == [1.0]


def test_simulate_with_the_papers_rule_and_a_load_slope(gradmux: Gradmux, csv_profile: Path) -> None:
    words = (
        "--scheme",
        "gc",
        "-p",
        "s=1",
        "-p",
        "code=cyclic",
        "--wait",
        "mu",
        "--mu",
        "2",
        "--slope",
        "3",
        "--jobs",
        "1",
    )
    ran = gradmux("simulate", csv_profile, *words, "--json")
    assert ran.code == 0
    assert ran.document["load"] == pytest.approx(2 / 3)
    assert ran.document["durations"] == pytest.approx([3 * (1.0 + 2.0)])
    assert ran.document["dropped"] == [[2]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--scheme", "gcc", "-p", "s=1"), "unknown scheme 'gcc'"),
        (("--scheme", "gc", "-p", "s=3"), "s"),
        (("--scheme", "gc", "-p", "s=1", "-p", "s=2"), "s is given twice"),
        (("--scheme", "m-sgc", "-p", "B=1", "-p", "W=2", "-p", "lambda=1", "--models", "1"), "T = 1"),
        (("--scheme", "uncoded", "--workers", "4"), "3"),
    ],
)
def test_what_does_not_fit_is_refused(
    gradmux: Gradmux, csv_profile: Path, words: tuple[str, ...], message: str
) -> None:
    ran = gradmux("simulate", csv_profile, *words)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert message in ran.err


def test_simulate_tells_it_in_words(gradmux: Gradmux, csv_profile: Path) -> None:
    ran = gradmux("simulate", csv_profile, "--scheme", "gc", "-p", "s=2", "--jobs", "2")
    assert ran.code == 0
    assert "2 (delay T = 0)" in ran.out


def test_show_describes_and_draws(gradmux: Gradmux, csv_profile: Path, tmp_path: Path) -> None:
    ran = gradmux("profile", "show", csv_profile, "--heat-map", tmp_path / "map.png", "--tail", tmp_path / "tail.svg")
    assert ran.code == 0
    assert "2 rounds of 3 workers" in ran.out
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "tail.svg").read_text()


def test_show_json_counts_stragglers_at_each_mu(gradmux: Gradmux, csv_profile: Path) -> None:
    document = gradmux("profile", "show", csv_profile, "--json", "--mu", "0.5", "--mu", "5").document
    assert [at["mu"] for at in document["straggling"]] == [0.5, 5.0]
    # At mu = 0.5 both of the slower answers of round 0 and the one of round 1; at mu = 5 the slowest alone.
    assert [at["share"] for at in document["straggling"]] == [pytest.approx(3 / 5), pytest.approx(1 / 5)]
    assert document["failed_share"] == pytest.approx(1 / 6)


def test_show_takes_a_generator(gradmux: Gradmux) -> None:
    assert gradmux("profile", "show", "lambda-like", "--json").document["workers"] == 256
    assert "neither a profile file nor a generator" in gradmux("profile", "show", "lambda").err


def test_no_picture_is_drawn_when_another_has_no_place(gradmux: Gradmux, tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.png"
    told = gradmux("profile", "show", "bursty", "--heat-map", drawn, "--tail", tmp_path / "nowhere" / "tail.png")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert not drawn.exists()
