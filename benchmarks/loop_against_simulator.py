"""How much slower a real run is than its simulation: 64 workers of the emulator, against the same in virtual time.

Delays are injected. Both play the same loop, so what differs is the work of the client, the endpoint and the workers
themselves, all on this machine. The run's wall time may be at most 1.05 times the simulated time of its own delays, as
its record has them; the exit status says whether it was. Beside it the time that the injected delays alone would take.

    python -m benchmarks.loop_against_simulator [--seconds 12]     simulated seconds of each run, about
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradmux import Job, Model, train
from gradmux.orchestrator.delays import DelayProfile, from_record, generate
from gradmux.orchestrator.delays.formats import save_profile
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.schemes.registry import get, parse_params
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate

WORKERS, MODELS = 64, 4
MOST = 1.05
TIME_SCALE = 0.5
"""of the injected delays: rounds of about half a second"""
SCHEMES: dict[str, dict[str, int | str]] = {
    "uncoded": {},
    "gc": {"s": 7},
    "m-sgc": {"B": 1, "W": 2, "lambda": 15},
}


@dataclass(frozen=True, slots=True)
class Compared:
    """Seconds."""

    real_s: float
    own_s: float
    """simulated, with the delays of the run's record"""
    injected_s: float
    """simulated, with the injected delays"""


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def simulated(profile: DelayProfile, scheme: str, jobs: int) -> Simulation:
    params = parse_params(get(scheme), SCHEMES[scheme])
    limits = Limits(concurrency=1000)
    return simulate(profile.delays_s, scheme, params, SimulationOptions(jobs=jobs, models=MODELS, limits=limits))


def compare(scheme: str, profile: DelayProfile, steps: int, folder: Path) -> Compared:
    """Runs a job, and simulates it twice."""
    injected, path = simulated(profile, scheme, steps * MODELS), folder / "delays.npz"
    save_profile(profile, path)
    models = [Model(f"mlp{index}", mlp, optimizer=("SGD", {"lr": 0.1})) for index in range(MODELS)]
    parameters: dict[str, Any] = dict(SCHEMES[scheme])
    job = Job(
        models=models, data="digits:train", batch_size=640, steps=steps, workers=WORKERS, scheme=scheme,
        parameters=parameters, emulator={"delays": str(path)},
    )  # fmt: skip
    run = train(job, home=folder / scheme).run
    own = simulated(from_record(run.record), scheme, steps * MODELS)
    return Compared(run.wall_s, own.total_s, injected.total_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0)
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    made = generate("lambda-like", rounds=200, workers=WORKERS, seed=0)
    profile = DelayProfile(made.delays_s * TIME_SCALE, name="injected")
    worst = 0.0
    print(f"{'scheme':8} {'jobs':>5} {'real, s':>9} {'own, s':>9} {'ratio':>7} {'injected, s':>12} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for scheme in SCHEMES:
            one_s = simulated(profile, scheme, 25 * MODELS).total_s / 25
            steps = max(2, round(seconds / one_s))
            found = compare(scheme, profile, steps, Path(folder))
            ratio = found.real_s / found.own_s
            worst = max(worst, ratio)
            print(
                f"{scheme:8} {steps * MODELS:5} {found.real_s:9.2f} {found.own_s:9.2f} {ratio:7.3f} "
                f"{found.injected_s:12.2f} {found.real_s / found.injected_s:7.3f}",
                flush=True,
            )
    print(f"the worst real run took {worst:.3f} times its own delays; at most {MOST}")
    return worst > MOST


if __name__ == "__main__":
    sys.exit(main())
