"""Every exact scheme on measured delay profiles, in one table: M models side by side, at most C = 256 calls in flight.

    python -m benchmarks.schemes_on_profiles [FOLDER] [--compute 1 4 16 64] [--models 4 1] [--jobs 120] [--each]

FOLDER holds profiles of 256 workers; without one the generated Lambda-like presets are played instead. Times, bills and
calls in flight are geometric means over all profiles; 1.00 is gradient coding under the paper's rule with its best s.
`--compute`: computing costs so many times what was measured.

What is compared, and how it is kept fair:
- A profile has 10 to 30 rounds. Longer runs take it again and again, each time with its workers in another order and
  from another round on: a scheme that learns which workers are fast may use what persists within a profile, but cannot
  learn the rows by heart.
- Parameters (n included) are the best of the grid for each profile, found on that profile: what tuning could give at
  most. "of another profile": the mean over all pairs of what was best on one and run on another. `pipeline-auto` has
  nothing to tune. The paper's rule waits for nobody, and so is not held to C; all others are.
- Independent jobs: M uncoded runs on C/M workers each, over when the last of them is. Every call is billed to its end,
  late and needless ones too.
- The bound: C/M calls per job, all known beforehand, the batch divided between the fastest of them without loss.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from gradmux.orchestrator.delays import PRESETS, DelayProfile, generate, load_profile
from gradmux.orchestrator.delays.load_fit import fit_load
from gradmux.orchestrator.evaluate import Batch, Chance, Evaluator, Setting
from gradmux.orchestrator.evaluate.grids import for_tuning
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits, Mu
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.simulate import SimulationOptions, simulate

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "profiles"
WORKERS = CONCURRENCY = 256
WIDE = (64, 96, 128, 192, 256)
"""n of the schemes that play rounds of one job"""
FEW = (64, 128, 192)
"""n of the sequential schemes, which have many parameters"""
NARROW = (6, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192, 224, 256)
"""n of the pipeline"""
LAPS = 4
"""times that a row is drawn from for the bound"""
Sets = list[Batch]


@dataclass(frozen=True)
class Condition:
    """One profile, made as long as the run."""

    name: str
    delays_s: FloatArray
    """(jobs + ramp, workers) seconds at no load"""
    slope_s: float
    """further seconds per batch"""

    def setting(self, models: int, jobs: int, *, by_mu: bool = False) -> Setting:
        """What parameters are evaluated against."""
        limits = Limits(harvest_late=False) if by_mu else Limits(concurrency=CONCURRENCY)
        load = LoadModel(slope_s=self.slope_s)
        if by_mu:
            return Setting(self.delays_s, jobs=jobs, models=models, wait=Mu(1.0, "all"), limits=limits, load=load)
        return Setting(self.delays_s, jobs=jobs, models=models, limits=limits, load=load)


@dataclass(frozen=True)
class Cost:
    """One parameter set on one condition."""

    total_s: float
    billed_s: float
    load: float
    chosen: str

    @property
    def in_flight(self) -> float:
        """Calls in flight, averaged over the run."""
        return self.billed_s / self.total_s


def conditions(folder: Path, rounds: int, compute: float, *, shuffled: bool = True) -> list[Condition]:
    """The profiles of 256 workers, or the presets. `shuffled` is for `pipeline_variants.py`, see `at_length`."""
    files = sorted(folder.glob("*.npz"))
    if not files:
        print(f"no profiles in {folder}: the generated presets are played instead")
        made = [(kind, generate(kind, rounds=30, workers=WORKERS, seed=1)) for kind in PRESETS]
        return [
            Condition(kind, at_length(each, each.slope_s or 0.0, rounds), compute * (each.slope_s or 0.0))
            for kind, each in made
        ]
    profiles = [profile for profile in map(load_profile, files) if profile.workers == WORKERS]
    found = []
    for _, group in groupby(sorted(profiles, key=job_of), job_of):
        members = list(group)
        slope_s = max(fit_load(members).slope_s, 0.0) if len({each.load for each in members}) > 1 else 0.0
        found += [
            Condition(each.name, at_length(each, slope_s, rounds, shuffled), compute * slope_s) for each in members
        ]
    return found


def job_of(profile: DelayProfile) -> str:
    """Model, region and batch size, from the profile's name."""
    return job_of_name(profile.name)


def job_of_name(name: str) -> str:
    """The same of the name."""
    return "-".join(name.split("-")[:3])


def at_length(profile: DelayProfile, slope_s: float, rounds: int, shuffled: bool = True) -> FloatArray:
    """(rounds, workers) the profile at no load, lap after lap; unless `shuffled`, all laps are the same."""
    base_s = profile.delays_s - slope_s * profile.reference_load()
    if not shuffled:
        return np.tile(base_s, (-(-rounds // len(base_s)), 1))[:rounds]
    rng = np.random.default_rng(0)
    laps = [
        np.roll(base_s, -int(rng.integers(len(base_s))), axis=0)[:, rng.permutation(WORKERS)]
        for _ in range(-(-rounds // len(base_s)))
    ]
    return np.concatenate(laps)[:rounds]


# --- schemes ---------------------------------------------------------------------------------------------------------


def widths(scheme: str, numbers: Sequence[int], models: int) -> Sets:
    """The tuner's parameters of a scheme, at every n."""
    return [
        batch for n in numbers for batch in for_tuning(scheme, n, models=models, max_load=float(n)) if batch.size > 0
    ]


def by_the_paper(scheme: str, models: int) -> Sets:
    """All parameters on 256 workers."""
    if scheme == "gc":
        s = np.arange(WORKERS)
        return [Batch("gc", WORKERS, {"stragglers": s}, s.size, "cyclic")]
    tried = for_tuning(scheme, WORKERS, models=models, max_load=float(WORKERS), by_mu=True)
    return [batch for batch in tried if batch.size > 0]


@dataclass(frozen=True)
class Grid:
    """All parameter sets of a scheme, evaluated on every condition."""

    sets: Sets
    costs: list[FloatArray]
    """per condition (2, sets): total and billed seconds"""

    def best(self, condition: int) -> Cost:
        """The fastest set there."""
        return self.cost(condition, int(np.argmin(self.costs[condition][0])))

    def cost(self, condition: int, column: int) -> Cost:
        """One set there."""
        place = column
        for batch in self.sets:
            if place < batch.size:
                total_s, billed_s = self.costs[condition][:, column]
                return Cost(float(total_s), float(billed_s), float(batch.load()[place]), told(batch, place))
            place -= batch.size
        raise AssertionError("no such column")

    def of_another(self, condition: int) -> Cost:
        """The geometric mean over what is best on each of the others."""
        others = [i for i in range(len(self.costs)) if i != condition]
        columns = [int(np.argmin(self.costs[i][0])) for i in others] or [int(np.argmin(self.costs[condition][0]))]
        total_s, billed_s = np.exp(np.log(self.costs[condition][:, columns]).mean(axis=1))
        return Cost(float(total_s), float(billed_s), math.nan, "")


def told(batch: Batch, column: int) -> str:
    """n and parameters in the papers' letters."""
    letters = {"stragglers": "s", "burst": "B", "window": "W", "max_stragglers": "lambda", "share": "q", "mu": "mu"}
    values = {letters[name]: of[column].item() for name, of in batch.values.items() if name in letters}
    return ", ".join([f"n={batch.workers}", *(f"{name}={value}" for name, value in values.items())])


class Contest:
    """All schemes on all conditions, for one M."""

    def __init__(self, places: Sequence[Condition], models: int, jobs: int) -> None:
        self.places, self.models, self.jobs = places, models, jobs
        self._chance = Chance(WORKERS, 0)

    def grid(self, sets: Sets, *, by_mu: bool = False) -> Grid:
        """Everything of a grid, everywhere."""
        costs = []
        for place in self.places:
            evaluator = Evaluator(place.setting(self.models, self.jobs, by_mu=by_mu), self._chance)
            played = evaluator.play_all(sets)
            costs.append(np.hstack([np.vstack([part.total_s, part.billed_s]) for part in played]))
        return Grid(sets, costs)

    def each(self, cost: Callable[[int], Cost]) -> list[Cost]:
        """One cost for each condition."""
        return [cost(i) for i in range(len(self.places))]

    def independent(self, i: int) -> Cost:
        """M uncoded jobs on C/M workers each: step k of job m meets the row of the pipeline's job k M + m."""
        place, n = self.places[i], CONCURRENCY // self.models
        rng = np.random.default_rng(1)
        steps = self.jobs // self.models
        rows = place.delays_s[: steps * self.models] + place.slope_s / n
        took = np.array([rng.choice(row, n, replace=False) for row in rows]).reshape(steps, self.models, n)
        return Cost(float(took.max(axis=2).sum(axis=0).max()), float(took.sum()), 1.0 / n, f"n={n} each")

    def automatic(self, i: int) -> Cost:
        """pipeline-auto, in the loop itself."""
        place = self.places[i]
        limits, load = Limits(concurrency=CONCURRENCY), LoadModel(slope_s=place.slope_s)
        options = SimulationOptions(jobs=self.jobs, models=self.models, limits=limits, load=load)
        run = simulate(place.delays_s, "pipeline-auto", {}, options)
        assert run.in_flight_max <= CONCURRENCY
        sizes = [sum(len(group.workers) for group in line.sent) for line in run.lines]
        mean_load = float(np.exp(np.mean([math.log(line.load) for line in run.lines])))
        return Cost(run.total_s, run.billed_s, mean_load, f"n={round(np.mean(sizes))}, G={round(1 / mean_load)}")

    def bound(self, i: int) -> Cost:
        """No exact scheme that gives each job C/M calls can be faster. By hand: t = (slope + x_1 + .. + x_j) / j."""
        place, n = self.places[i], CONCURRENCY // self.models
        rng = np.random.default_rng(2)
        drawn = np.array([rng.choice(row, n, replace=False) for row in place.delays_s for _ in range(LAPS)])
        shared = (place.slope_s + np.sort(drawn, axis=1).cumsum(axis=1)) / np.arange(1, n + 1)
        return Cost(float(shared.min(axis=1).mean()) * self.jobs / self.models, math.nan, math.nan, "")


def play(contest: Contest) -> dict[str, list[Cost]]:
    """Scheme -> its cost on every condition."""
    models = contest.models
    paper = contest.grid(by_the_paper("gc", models), by_mu=True)
    pipeline = contest.grid(widths("pipeline", NARROW, models))
    lines = {"gc, paper's rule": contest.each(paper.best)}
    uncoded = contest.grid(widths("uncoded", [WORKERS], models))
    lines["uncoded"] = contest.each(uncoded.best)
    if models > 1:
        lines[f"{models} independent uncoded jobs"] = contest.each(contest.independent)
    lines["backup tasks"] = contest.each(contest.grid(widths("backup", WIDE, models)).best)
    lines["gc, earliest decode"] = contest.each(contest.grid(widths("gc", WIDE, models)).best)
    for scheme in ("sr-sgc", "m-sgc") if models > 1 else ():
        lines[f"{scheme}, paper's rule"] = contest.each(contest.grid(by_the_paper(scheme, models), by_mu=True).best)
        lines[f"{scheme}, earliest"] = contest.each(contest.grid(widths(scheme, FEW, models)).best)
    lines["pipeline"] = contest.each(pipeline.best)
    lines["pipeline of another profile"] = contest.each(pipeline.of_another)
    lines["pipeline-auto"] = contest.each(contest.automatic)
    lines["bound (see above)"] = contest.each(contest.bound)
    return lines


# --- telling ---------------------------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """The geometric one."""
    return float(np.exp(np.mean(np.log(values))))


def tell(contest: Contest, compute: float, lines: dict[str, list[Cost]], *, each: bool) -> None:
    """The table of one M."""
    paper = lines["gc, paper's rule"]
    alone = next((costs for name, costs in lines.items() if "independent" in name), None)
    print(f"\nM = {contest.models}, computing x {compute:g}, {contest.jobs} jobs, {len(contest.places)} profiles")
    print(f"{'':30}{'time':>7}{'to indep.':>11}{'billed':>8}{'load':>8}{'in flight':>11}   most often")
    for name, costs in lines.items():
        ratio = mean([c.total_s / p.total_s for c, p in zip(costs, paper, strict=True)])
        billed = mean([c.billed_s / p.billed_s for c, p in zip(costs, paper, strict=True)])
        beside = mean([c.total_s / a.total_s for c, a in zip(costs, alone, strict=True)]) if alone else math.nan
        load, in_flight = mean([c.load for c in costs]), mean([c.in_flight for c in costs])
        (chosen, times), *_ = Counter(c.chosen for c in costs).most_common(1)
        often = f"{chosen} ({times} of {len(costs)})" if times > 1 and chosen else chosen
        numbers = ((ratio, 7, ".3f"), (beside, 11, ".3f"), (billed, 8, ".3f"), (load, 8, ".4f"), (in_flight, 11, ".0f"))
        print(f"{name:30}" + "".join(_number(*number) for number in numbers) + f"   {often}")
    if each:
        _tell_each(contest, lines)


def _number(value: float, width: int, form: str) -> str:
    return f"{'-' if math.isnan(value) else format(value, form):>{width}}"


def _tell_each(contest: Contest, lines: dict[str, list[Cost]]) -> None:
    paper = lines["gc, paper's rule"]
    for i, place in enumerate(contest.places):
        print(f"  {place.name} (slope {place.slope_s:.3f} s)")
        for name, costs in lines.items():
            print(f"    {name:30}{costs[i].total_s / paper[i].total_s:7.3f}   {costs[i].chosen}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--compute", nargs="+", type=float, default=[1.0], help="computing costs so many times as much")
    parser.add_argument("--models", nargs="+", type=int, default=[4, 1], help="M")
    parser.add_argument("--jobs", type=int, default=120, help="J, of all models together")
    parser.add_argument("--each", action="store_true", help="every profile too")
    arguments = parser.parse_args()
    for compute in arguments.compute:
        for models in arguments.models:
            start_s = time.perf_counter()
            places = conditions(arguments.folder, arguments.jobs + models, compute)
            contest = Contest(places, models, arguments.jobs)
            tell(contest, compute, play(contest), each=arguments.each)
            print(f"{time.perf_counter() - start_s:.0f} s")


if __name__ == "__main__":
    main()
