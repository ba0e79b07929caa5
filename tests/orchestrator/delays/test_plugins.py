"""Delay generators from elsewhere, and delays that are no matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator.delays import DelayGenerator, generate, load_profile, parameters_for
from gradmux.orchestrator.delays.find import GENERATED_WORKERS, find_profile
from gradmux.orchestrator.delays.generators import PLUGINS, known, register
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.simulate import SimulationOptions, simulate


@dataclass(frozen=True)
class Pareto:
    shape: float = 2.0


def pareto(parameters: Pareto, rounds: int, workers: int, seed: int) -> np.ndarray:
    return 1.0 + np.random.default_rng(seed).pareto(parameters.shape, (rounds, workers))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    PLUGINS.clear()


def test_a_generator_from_elsewhere_is_one_like_ours() -> None:
    register("pareto", DelayGenerator(pareto, Pareto()))
    made = generate("pareto", 5, 4, 1, parameters_for("pareto", {"shape": 3.0}))
    np.testing.assert_array_equal(made.delays_s, pareto(Pareto(3.0), 5, 4, 1))
    assert find_profile("pareto", seed=0).workers == GENERATED_WORKERS
    with pytest.raises(ConfigError, match="pareto has no parameter 'scale'; it has shape"):
        parameters_for("pareto", {"scale": 1.0})


def test_an_entry_point_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "tails-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tails\nVersion: 1.0\n")
    points = "[gradmux.delays]\ntails = tails:MADE\nwrong = tails:Two\nangry = tails_angry:MADE\n"
    (info / "entry_points.txt").write_text(points)
    (tmp_path / "tails.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\n"
        "from gradmux.orchestrator.delays import DelayGenerator\n"
        "@dataclass(frozen=True)\nclass Two:\n    mean_s: float = 2.0\n"
        "MADE = DelayGenerator(lambda p, rounds, workers, seed: np.full((rounds, workers), p.mean_s), Two())\n"
    )
    (tmp_path / "tails_angry.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert known("tails")
    assert float(find_profile("tails", seed=0).delays_s.max()) == 2.0
    with pytest.raises(ConfigError, match="delay generator 'wrong': tails:Two is a type, not a DelayGenerator"):
        known("wrong")
    with pytest.raises(ConfigError, match="'angry' cannot be loaded from tails_angry:MADE: ZeroDivisionError"):
        known("angry")
    with pytest.raises(ConfigError, match=r"no delay generator is called 'sails'; there are .*, angry, tails, wrong"):
        generate("sails", 2, 2, 0)


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (lambda p, rounds, workers, seed: np.ones((rounds, 1)), r"gave \(5, 1\) delays, not \(5, 4\)"),
        (
            lambda p, rounds, workers, seed: np.random.default_rng().random((rounds, workers)),
            "other delays for the same",
        ),
        (lambda p, rounds, workers, seed: -np.ones((rounds, workers)), "20 of 20 delays are negative"),
        (lambda p, rounds, workers, seed: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_generator_gives_is_checked(sample: object, told: str) -> None:
    register("odd", DelayGenerator(sample, Pareto()))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=told):
        generate("odd", 5, 4, 0)


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ConfigError, match="'bursty' is there already"):
        register("bursty", DelayGenerator(pareto, Pareto()))


@pytest.mark.parametrize(
    ("delays", "told"),
    [
        (np.full((4, 3), np.nan), "12 of 12 delays are not a number, the first in round 0, worker 0"),
        ([[1.0, 2.0], [1.0, -0.5]], "1 of 4 delays are negative, the first in round 1, worker 1"),
        ([[1.0, 2.0], [1.0]], "each round with as many"),
        ([1.0, 2.0], "matrix, got 1 dimension"),
        (np.zeros((0, 3)), "empty: 0 rounds, 3 workers"),
        ([[t, w, 0.5 + t] for t in range(4) for w in range(5)], "look like one line per answer .* here 4 x 5"),
    ],
)
def test_what_is_no_matrix_of_delays_is_refused_by_name(delays: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        simulate(delays, "uncoded", {}, SimulationOptions(jobs=2))  # type: ignore[arg-type]


def test_a_table_with_a_line_per_answer_is_refused_by_its_head(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("round,worker,seconds\n0,0,0.5\n0,1,0.6\n")
    with pytest.raises(ConfigError, match="has columns round, worker, seconds, one line per answer"):
        load_profile(path)


def test_three_workers_are_no_such_table() -> None:
    assert simulate(np.full((12, 3), 2.0), "uncoded", {}, SimulationOptions(jobs=2)).total_s == 4.0
