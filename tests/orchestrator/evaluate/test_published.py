"""The evaluator against results of the authors' own simulator, and against what their search finds best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmux.orchestrator.evaluate import Batch, Evaluator, Setting, grids
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Mu
from tests.orchestrator import published

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
CASES = sorted((SHARED / "oracle").glob("*.json"))
BEST = {"gc": "03-gc-ca30-best", "sr-sgc": "07-sr-ca30-best", "m-sgc": "12-m-ca30-best"}
MAX_DELAY = 10

absent = pytest.mark.skipif(not CASES, reason="the published results lie beside the project only where it is developed")


def setting_of(case: dict[str, Any]) -> Setting:
    with np.load(SHARED / "profiles" / f"{case['profile']}.npz") as profile:
        delays = profile["delays"].astype(np.float64)
    return Setting(
        delays,
        jobs=case["n_jobs"],
        wait=Mu(case["mu"], "all", "bursty"),
        limits=published.AS_PUBLISHED,
        load=LoadModel(case["slope"], case["base_load"]),
    )


def batch_of(case: dict[str, Any]) -> Batch:
    given = case["params"]
    values = {
        published.LETTERS[letter]: np.array([value]) for letter, value in given.items() if letter in published.LETTERS
    }
    if case["scheme"] == "gc":
        values = {"stragglers": np.array([given["s"] - 1])}
    return Batch(case["scheme"], case["workers"], values, 1, "cyclic", loads=np.array([case["load"]]))


@absent
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_reproduces_the_published_simulator(path: Path) -> None:
    case = json.loads(path.read_text())
    played = Evaluator(setting_of(case)).play(batch_of(case), detail=True)
    assert played.durations_s is not None
    np.testing.assert_allclose(played.durations_s[:, 0], case["durations"], rtol=0, atol=1e-9)
    assert played.total_s[0] == pytest.approx(case["total_runtime"], abs=1e-9)
    assert played.waits[0] == case["num_waits"]


@absent
@pytest.mark.parametrize("scheme", BEST)
def test_its_search_finds_the_published_best(scheme: str) -> None:
    case = json.loads((SHARED / "oracle" / f"{BEST[scheme]}.json").read_text())
    batches = grids.published(case["workers"], case["n_jobs"], MAX_DELAY)
    batch = next(batch for batch in batches if batch.scheme == scheme)
    assert Evaluator(setting_of(case)).play(batch).total_s.min() == pytest.approx(case["total_runtime"], abs=1e-9)


@pytest.mark.parametrize("case", published.CASES, ids=lambda case: case["id"])
def test_reproduces_the_published_simulator_on_a_formula_s_delays(case: dict[str, Any]) -> None:
    setting = Setting(
        published.delays_s(case), jobs=case["jobs"], wait=published.wait(case), limits=published.AS_PUBLISHED
    )
    values = {name: np.array([value]) for name, value in published.params(case).items() if name != "code"}
    batch = Batch(case["scheme"], case["workers"], values, 1, "cyclic", loads=np.zeros(1))
    played = Evaluator(setting).play(batch, detail=True)
    assert played.durations_s is not None
    np.testing.assert_allclose(played.durations_s[:, 0], case["durations"], rtol=0, atol=1e-9)
    assert played.total_s[0] == pytest.approx(case["total"], abs=1e-9)
    if case["scheme"] != "uncoded":  # it waits for all workers in any case, which the published figures do not count
        assert played.waits[0] == case["waits"]


def test_the_published_search_has_the_published_size() -> None:
    assert [batch.size for batch in grids.published(256, 80, 20)] == [256, 70_144, 25_600]
