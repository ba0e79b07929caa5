"""The simulator against results of the authors' own simulator: on delays from a formula, and on their measured ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate
from tests.orchestrator import published

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
CASES = sorted((SHARED / "oracle").glob("*.json"))


def play(case: dict[str, Any]) -> Simulation:
    with np.load(SHARED / "profiles" / f"{case['profile']}.npz") as profile:
        delays = profile["delays"].astype(np.float64)
    given = case["params"]
    params = {
        "uncoded": lambda: {},
        # The published code accepts at most s - 1 late workers while it charges load (s + 1) / n.
        "gc": lambda: {"stragglers": given["s"] - 1, "code": "cyclic"},
        "sr-sgc": lambda: {
            "burst": given["B"],
            "window": given["W"],
            "max_stragglers": given["lambda"],
            "code": "cyclic",
        },
        "m-sgc": lambda: {
            "burst": given["B"],
            "window": given["W"],
            "max_stragglers": given["lambda"],
            "code": "cyclic",
        },
    }[case["scheme"]]()
    options = SimulationOptions(
        jobs=case["n_jobs"],
        wait=Mu(mu=case["mu"], wait_out="all", straggler_model="bursty"),
        limits=published.AS_PUBLISHED,
        load=LoadModel(slope_s=case["slope"], base_load=case["base_load"], load=case["load"]),
    )
    return simulate(delays, case["scheme"], params, options)


@pytest.mark.skipif(not CASES, reason="the published results lie beside the project only where it is developed")
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_reproduces_the_published_simulator(path: Path) -> None:
    case = json.loads(path.read_text())
    got = play(case)
    np.testing.assert_allclose(got.durations, case["durations"], rtol=0, atol=1e-9)
    assert got.total_s == pytest.approx(case["total_runtime"], abs=1e-9)
    assert got.rounds == case["total_rounds"]
    assert got.delay == case["delay_T"]
    assert got.waits == case["num_waits"]
    assert [list(dropped) for dropped in got.dropped] == case["dropped_workers"]
    assert got.load == case["load"]


@pytest.mark.parametrize("case", published.CASES, ids=lambda case: case["id"])
def test_reproduces_the_published_simulator_on_a_formula_s_delays(case: dict[str, Any]) -> None:
    """With idle workers, rounds left out (sr-sgc at its end) and rounds without any task (m-sgc, lambda = n)."""
    options = SimulationOptions(jobs=case["jobs"], wait=published.wait(case), limits=published.AS_PUBLISHED)
    got = simulate(published.delays_s(case), case["scheme"], published.params(case), options)
    np.testing.assert_allclose(got.durations, case["durations"], rtol=0, atol=1e-9)
    assert got.total_s == pytest.approx(case["total"], abs=1e-9)
    if case["scheme"] != "uncoded":  # it waits for all workers in any case, which the published figures do not count
        assert got.waits == case["waits"]
