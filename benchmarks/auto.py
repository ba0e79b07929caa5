"""What `scheme = "auto"` takes beside uncoded and beside the best that a fixed choice could have been.

    python -m benchmarks.auto [FOLDER] [--steps 40] [--emulator]

In the simulator, over the profiles in FOLDER (the generated presets without one), over delays on which coding cannot
help, and over delays that change in mid-run. "best fixed" is the best of everything that `tune` tries, found on the
very delays of the run: nobody could have known it. "later" is what auto took after its measuring segments, relative to
what uncoded would have taken for the same gradients: above 1 it lost more than the probe costs, and the benchmark
fails. What deciding costs is told apart, in CPU seconds of the client; a real run thinks while its workers work, but
for the first time.

`--emulator` is one real run instead: the same job under uncoded, auto, and what `tune` chooses, with real worker
processes and generated Lambda-like delays, in wall seconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.schemes_on_profiles import FOLDER, Condition, conditions, mean
from gradmux import Job, Model, train
from gradmux.orchestrator.auto import AutoJob, Choice, Pilot
from gradmux.orchestrator.auto.simulated import AutoSimulation, simulate_auto
from gradmux.orchestrator.delays import DelayProfile, generate, save_profile
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.record import Line
from gradmux.orchestrator.results import RunResult
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate
from gradmux.orchestrator.tune import SCHEMES, TuneOptions, tune
from gradmux.orchestrator.tune.material import prepare
from gradmux.orchestrator.tune.options import FITTING
from gradmux.orchestrator.tune.search import batches, rank, try_all

WORKERS = 64
REAL_WORKERS, REAL_CONCURRENCY = 16, 64
"""of the run on the emulator: so few that the machine itself is not what is measured"""
JOBS = (AutoJob(4, 0, WORKERS, 256), AutoJob(4, 0, WORKERS, WORKERS), AutoJob(1, 0, WORKERS, WORKERS))
"""steps are added"""
EQUAL = 1e-9
"""of comparing totals"""
HEAD = (
    f"{'':34}{'uncoded s':>10}{'best fixed s':>13}{'auto s':>9}{'measuring':>10}{'/uncoded':>9}{'/best':>7}{'later':>7}"
    f"{'deciding':>10}   what auto played after measuring"
)


@dataclass(frozen=True)
class Compared:
    """One job on one condition."""

    name: str
    auto: AutoSimulation
    uncoded: Simulation
    best_s: float
    deciding_s: float

    @property
    def later(self) -> float:
        """Auto over uncoded, after what was for measuring."""
        whole, measured = self.auto.whole, [segment for segment in self.auto.segments if segment.measures]
        jobs = whole.models * max((segment.end for segment in measured), default=0)
        uncoded_s = sum(self.uncoded.durations[jobs:])
        return (whole.total_s - self.auto.measured_s) / uncoded_s if uncoded_s > 0 else 1.0

    def row(self) -> str:
        """One line of the table."""
        auto_s = self.auto.whole.total_s
        played = [told(segment.choice, segment.end) for segment in self.auto.segments if not segment.measures]
        return (
            f"{self.name:34}{self.uncoded.total_s:10.1f}{self.best_s:13.1f}{auto_s:9.1f}{self.auto.measured_s:10.1f}"
            f"{auto_s / self.uncoded.total_s:9.3f}{auto_s / self.best_s:7.2f}{self.later:7.3f}{self.deciding_s:8.2f} s"
            f"   {', then '.join(played)}"
        )


def told(choice: Choice, end: int) -> str:
    """Scheme, parameters, and the step at which it ended."""
    letters = {"per_job": "n", "stragglers": "s", "share": "q", "mu": "mu"}
    params = "".join(f" {letters[key]}={value}" for key, value in choice.params.items() if key in letters)
    return f"{choice.scheme}{params} (to step {end})"


class TimedPilot(Pilot):
    """Knows how long it thought."""

    deciding_s = 0.0

    def learn(self, lines: Sequence[Line]) -> Choice | None:
        began = time.process_time()
        choice = super().learn(lines)
        self.deciding_s += time.process_time() - began
        return choice

    def watch(self, lines: Sequence[Line]) -> Choice | None:
        began = time.process_time()
        choice = super().watch(lines)
        self.deciding_s += time.process_time() - began
        return choice


def compare(name: str, delays_s: FloatArray, slope_s: float, job: AutoJob) -> Compared:
    """The three on the same delays; `delays_s` (jobs + ramp, workers) at no load."""
    load, pilot = LoadModel(slope_s), TimedPilot(job)
    auto = simulate_auto(delays_s, job, load, pilot)
    limits = Limits(concurrency=job.concurrency)
    options = SimulationOptions(job.models * job.steps, job.models, limits=limits, load=load, workers=job.workers)
    uncoded = simulate(delays_s, "uncoded", {}, options)
    return Compared(name, auto, uncoded, best_fixed_s(delays_s, slope_s, job), pilot.deciding_s)


def best_fixed_s(delays_s: FloatArray, slope_s: float, job: AutoJob) -> float:
    """Seconds of the best of all that `tune` tries, by hindsight; pipeline-auto, which is not fixed, left out."""
    jobs = job.models * job.steps
    options = TuneOptions(
        jobs=jobs, models=job.models, concurrency=job.concurrency, schemes=tuple(set(SCHEMES) - {"sr-sgc"})
    )
    material = prepare(DelayProfile(delays_s, slope_s=slope_s), options)
    tried = try_all(batches(material, options), material, options)
    place, column = rank(tried, options)[0]
    return float(tried[place].total_s[column])


# --- conditions ------------------------------------------------------------------------------------------------------


def helpless(rows: int) -> Iterator[Condition]:
    """Delays on which coding cannot help one model."""
    rng = np.random.default_rng(4)
    ones = np.ones((rows, WORKERS))
    yield Condition("constant", ones, 0.0)
    yield Condition("constant, computing costs", ones, 30.0)
    yield Condition("all equal in each round", ones * rng.uniform(0.5, 2.0, (rows, 1)), 10.0)
    yield Condition("1 % apart", ones * rng.uniform(1.0, 1.01, ones.shape), 30.0)
    yield Condition("load-bound, 10 % apart", 0.05 + 0.1 * rng.random(ones.shape), 60.0)
    yield Condition("load-bound, 30 % apart", 0.05 + 0.3 * rng.random(ones.shape), 60.0)


def drifting(rows: int) -> Iterator[Condition]:
    """Delays that change at two fifths of the run."""
    rng = np.random.default_rng(5)
    calm = rng.uniform(1.0, 1.05, (rows, WORKERS))
    heavy = calm + 8.0 * (rng.random(calm.shape) < 0.05)
    at = 2 * rows // 5
    yield Condition("calm, then stragglers", np.concatenate([calm[:at], heavy[at:]]), 20.0)
    yield Condition("stragglers, then calm", np.concatenate([heavy[:at], calm[at:]]), 20.0)
    yield Condition("stragglers, then 5 x as slow", np.concatenate([heavy[:at], 5 * heavy[at:]]), 20.0)
    yield Condition(
        "few stragglers, then many", np.concatenate([heavy[:at], np.roll(heavy, 1, 1)[at:] + heavy[at:]]), 20.0
    )


# --- the simulator ---------------------------------------------------------------------------------------------------


def table(title: str, places: Sequence[Condition], job: AutoJob) -> list[Compared]:
    """One table of one job, printed as it comes."""
    print(f"\n{title}: M = {job.models}, n = {job.workers}, C = {job.concurrency}, {job.steps} steps\n{HEAD}")
    found = []
    for place in places:
        compared = compare(place.name, place.delays_s[:, :WORKERS], place.slope_s, job)
        print(compared.row(), flush=True)
        found.append(compared)
    to_uncoded = [each.auto.whole.total_s / each.uncoded.total_s for each in found]
    to_best = [each.auto.whole.total_s / each.best_s for each in found]
    print(
        f"{'geometric mean':34}{'':42}{mean(to_uncoded):9.3f}{mean(to_best):7.2f}"
        f"{mean([each.later for each in found]):7.3f}"
    )
    return found


def in_the_simulator(folder: Path, steps: int) -> int:
    """All tables; how many conditions auto lost more on than its probe costs."""
    found: list[Compared] = []
    for job in JOBS:
        job = replace(job, steps=steps if job.models > 1 else 2 * steps)
        rows = job.models * job.steps + job.models
        found += table("measured", conditions(folder, rows, 1.0), job)
        found += table("coding cannot help", list(helpless(rows)), job)
        found += table("drift", list(drifting(rows)), job)
    lost = [each for each in found if each.later > 1 + EQUAL]
    print(f"\n{len(found) - len(lost)} of {len(found)}: after measuring no slower than uncoded")
    for each in lost:
        print(f"slower: {each.name}, M = {each.auto.whole.models}: {each.later:.3f}")
    return len(lost)


# --- the emulator ----------------------------------------------------------------------------------------------------


def make_mlp(hidden: int) -> nn.Module:
    """What each worker computes with: little, so that delays decide."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def job_under(scheme: str, params: Mapping[str, int | float | str], workers: int, delays: Path, steps: int) -> Job:
    """Four models on digits; the delays of a file."""
    digits = load_digits()
    models = [
        Model(f"mlp-{h}", make_mlp, args={"hidden": h}, optimizer=("Adam", {"lr": 3e-3})) for h in (16, 24, 32, 48)
    ]
    return Job(
        models=models,
        data=(np.asarray(digits.data / 16, dtype=np.float32), np.asarray(digits.target)),
        batch_size=512,
        steps=steps,
        workers=workers,
        scheme=scheme,
        cluster={"concurrency": REAL_CONCURRENCY},
        parameters=params,
        emulator={"delays": str(delays)},
    )


def on_the_emulator(steps: int) -> None:
    """One job under uncoded, auto, and what `tune` finds on the very delays."""
    profile = generate("lambda-like", rounds=4 * steps, workers=REAL_WORKERS, seed=3)
    options = TuneOptions(jobs=4 * steps, models=4, concurrency=REAL_CONCURRENCY)
    tuned = tune(profile, options)
    fixed = next(choice for choice in tuned.choices if choice.scheme != FITTING)
    rows: list[tuple[str, str, Mapping[str, int | float | str]]] = [
        ("uncoded", "uncoded", {}),
        ("auto", "auto", {}),
        ("pipeline-auto from the start", "pipeline-auto", {}),
        ("best fixed, by hindsight", fixed.scheme, fixed.params),
    ]
    print(
        f"on the emulator: 4 models x {steps} steps, n = {REAL_WORKERS}, C = {REAL_CONCURRENCY}, "
        "generated Lambda-like delays"
    )
    with tempfile.TemporaryDirectory() as folder:
        delays = Path(folder) / "delays.npz"
        save_profile(profile, delays)
        for name, scheme, params in rows:
            began = time.perf_counter()
            trained = train(job_under(scheme, params, REAL_WORKERS, delays, steps), backend="local", home=Path(folder))
            whole_s = time.perf_counter() - began
            print(
                f"{name:28}{trained.run.wall_s:8.1f} s from first call to last gradient, {whole_s:6.1f} s in all,"
                f"{trained.run.billed_s:8.0f} s billed   {scheme_of(trained.run)}",
                flush=True,
            )


def scheme_of(run: RunResult) -> str:
    """What was played."""
    return f"{run.scheme} {dict(run.params)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=40, help="of each model; twice as many for one model alone")
    parser.add_argument("--emulator", action="store_true", help="one real run instead, of half as many steps")
    arguments = parser.parse_args()
    if arguments.emulator:
        on_the_emulator(arguments.steps // 2)
        return
    sys.exit(1 if in_the_simulator(arguments.folder, arguments.steps) else 0)


if __name__ == "__main__":
    main()
