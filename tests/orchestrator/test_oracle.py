"""The simulator against results of the authors' own simulator, on their measured delays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits, Mu
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate

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
        limits=Limits(harvest_late=False, invoke_idle=True),
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
