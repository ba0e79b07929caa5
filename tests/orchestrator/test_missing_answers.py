"""A delay that is missing means one thing everywhere: a call that fails, is found, and is invoked again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gradmux.cli.main import gradmux
from gradmux.orchestrator.delays import DelayProfile, Failures, load_profile, save_profile
from gradmux.orchestrator.errors import ConfigError, TaskFailed
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.simulate import SimulationOptions, simulate

INF = np.inf
ODD: dict[str, tuple[object, str]] = {
    "nan": ([[1.0, np.nan], [1.0, 1.0]], "1 of 4 delays are not a number, the first in round 0, worker 1"),
    "negative": ([[1.0, 1.0], [-0.5, 1.0]], "1 of 4 delays are negative, the first in round 1, worker 0"),
    "ragged": ([[1.0, 2.0], [1.0]], "each round with as many"),
    "no matrix": ([1.0, 2.0], "1 dimension"),
    "three dimensions": ([[[1.0]]], "3 dimension"),
    "empty": (np.zeros((0, 4)), "0 rounds"),
    "text": ([["a", "b"]], "matrix of seconds"),
    "no answer at all": ([[INF, INF]], "holds failed invocations only"),
    "one line per answer": (
        [[t, w, 1.0 + 0.1 * w] for t in range(3) for w in range(2)],
        "look like one line per answer",
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_matrix_of_delays_is_refused_by_name(kind: str) -> None:
    delays, said = ODD[kind]
    with pytest.raises(ConfigError, match=said):
        simulate(delays, "uncoded", {}, SimulationOptions(jobs=2))  # type: ignore[arg-type]


def test_a_failure_is_found_after_the_delay_stated_and_its_second_call_counts() -> None:
    delays = np.array([[INF, 1.0]])
    for failures, found_s in ((Failures(), 60.0), (Failures(7.0), 7.0), (Failures(7.0, np.array([[0.25, INF]])), 0.25)):
        run = simulate(delays, "uncoded", {}, SimulationOptions(jobs=1, failures=failures, limits=Limits(attempts=9)))
        again = run.invocations - 2  # the column that a second call draws may be the one that fails
        assert run.total_s == pytest.approx(again * found_s + 1.0)
        assert run.billed_s == pytest.approx(again * found_s + 2.0)


def test_attempts_bound_it() -> None:
    with pytest.raises(TaskFailed):
        simulate(np.array([[INF, 1.0]]), "uncoded", {}, SimulationOptions(jobs=1, limits=Limits(attempts=1)))
    simulate(np.array([[INF, 1.0]]), "gc", {"s": 1}, SimulationOptions(jobs=1, limits=Limits(attempts=1)))


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_a_file_keeps_what_its_format_can_say(suffix: str, tmp_path: Path) -> None:
    profile = DelayProfile(np.array([[0.5, 1.0], [INF, 2.0]]), failed=np.array([[True, False], [True, False]]))
    save_profile(profile, tmp_path / f"p{suffix}")
    read = load_profile(tmp_path / f"p{suffix}")
    assert np.array_equal(read.delays_s, profile.delays_s)
    stated_s = profile.found_s if suffix == ".npz" else np.full((2, 2), INF)
    assert np.array_equal(read.found_s, stated_s)


def test_the_commands_say_the_rule_and_take_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "missing.csv"
    path.write_text("1.0,1.1,,1.2\n1.0,1.3,1.1,1.2\n" * 12)
    alike = ("--jobs", "4", "--models", "1", "--workers", "4", "--timeout-s", "5", "--attempts", "6")
    played = run_command("simulate", str(path), "--scheme", "uncoded", *alike)
    tuned = run_command("tune", str(path), "--schemes", "uncoded", "--resamples", "0", *alike)
    for said, _ in (played, tuned):
        assert "12.5% of the invocations failed: each is found after 5 s, the timeout, and invoked again" in said
    assert played[1]["total_s"] == pytest.approx(tuned[1]["best"]["total_s"])
    assert played[1]["total_s"] > 10.0


def run_command(*words: str) -> tuple[str, dict[str, dict[str, float]]]:
    """(what it said beside, its JSON)."""
    done = CliRunner().invoke(gradmux, ["--json", *words])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    return " ".join([done.stderr, *document.get("warnings", [])]).replace("\n", " "), document
