"""Bill and time together: E of pipeline-auto on measured profiles, relative to the best that is done by hand.

    python -m benchmarks.worth [FOLDER] [--compute 1 4 16 64] [--models 4] [--steps 50]

E is the bill plus V times the time (V = inf: the time). By hand: a plain map with 1 to 6 copies, and independent
uncoded jobs. "reachable" is the best of these, of stretches with all K and copies, and of fixed pipelines, found on
the profile itself. `pipeline-auto` chooses n, G and K for each job; it begins with the slope and with delays of the
*other* jobs' profiles, and has never met those that it is played on. Profiles without a known slope are left out, and
of each job two or three loads are played. C = 256, workers of 2 GB; cold starts and data out of AWS are in none of
the figures.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.schemes_on_profiles import CONCURRENCY, FOLDER, Condition, conditions, job_of_name, mean
from gradmux.orchestrator.evaluate import Batch, Evaluator
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.prices import PRICES, Items, Usage
from gradmux.orchestrator.schemes.scheme import Expected
from gradmux.orchestrator.schemes.sizing import lengths
from gradmux.orchestrator.schemes.worth import Worth, value
from gradmux.orchestrator.simulate import SimulationOptions, simulate

WORTHS = (0.0, 10.0, 100.0, math.inf)
COPIES = range(1, 7)
LONGEST_S = 850.0
"""of the computing in one call"""
MEMORY_MB = 2048
LOADS = ("load0.250", "load0.500", "load0.750")
WIDTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TOLERANCES = (0, 1, 3)


@dataclass(frozen=True)
class Point:
    """What a run came to."""

    seconds: float
    usd: float

    def worth(self, hour_usd: float) -> float:
        """E."""
        return value(self.usd, self.seconds, hour_usd)


def played(evaluator: Evaluator, batch: Batch) -> list[Point]:
    """Every column."""
    run = evaluator.play(batch)
    columns = zip(run.total_s.tolist(), run.billed_s.tolist(), run.invocations.tolist(), strict=True)
    return [Point(seconds, usd(billed_s, calls)) for seconds, billed_s, calls in columns]


def usd(billed_s: float, invocations: int) -> float:
    """The bill."""
    return Items.of(Usage(billed_s, invocations), PRICES, MEMORY_MB).usd


def stretches(evaluator: Evaluator, place: Condition, steps: int, copies: int) -> list[Point]:
    """Of every K; the last is a plain map."""
    most = steps if place.slope_s <= 0 else min(steps, int(LONGEST_S / place.slope_s))
    k = np.array(sorted({*lengths(steps, most), math.ceil(steps / math.ceil(steps / max(most, 1)))}))
    values = {"copies": np.full(k.size, copies), "steps": k, "quantile": np.ones(k.size)}
    return played(evaluator, Batch("stretch", copies, values, k.size))


def pipeline(evaluator: Evaluator, workers: int, tolerance: int) -> list[Point]:
    """One fixed size."""
    values = {"per_job": np.array([workers]), "stragglers": np.array([tolerance])}
    return played(evaluator, Batch("pipeline", workers, values, 1))


def expected(place: Condition, places: Sequence[Condition]) -> Expected:
    """What the other jobs' profiles say of delays, and the slope as a trial tells it."""
    others = [each.delays_s.ravel() for each in places if job_of_name(each.name) != job_of_name(place.name)]
    quantiles = np.quantile(np.concatenate(others), np.linspace(0.005, 0.995, 96))
    return Expected(tuple(quantiles.tolist()), place.slope_s)


def automatic(place: Condition, begin: Expected, models: int, jobs: int, hour_usd: float) -> Point:
    """pipeline-auto in the loop itself."""
    options = SimulationOptions(
        jobs=jobs,
        models=models,
        limits=Limits(concurrency=CONCURRENCY),
        load=LoadModel(place.slope_s),
        worth=Worth(hour_usd=hour_usd),
        expected=begin,
        stretches=True,
    )
    run = simulate(place.delays_s, "pipeline-auto", {}, options)
    return Point(run.total_s, usd(run.billed_s, run.invocations))


def contest(places: Sequence[Condition], place: Condition, models: int, steps: int) -> dict[float, tuple[float, float]]:
    """V -> E of pipeline-auto and of what is reachable, relative to the best by hand."""
    jobs, share = models * steps, max(1, CONCURRENCY // models)
    evaluator = Evaluator(place.setting(models, jobs))
    of_copies = [stretches(evaluator, place, steps, copies) for copies in COPIES]
    by_hand = [points[-1] for points in of_copies] + pipeline(evaluator, share, 0)
    fixed = [
        point for n in WIDTHS if n <= 2 * share for s in TOLERANCES if s < n for point in pipeline(evaluator, n, s)
    ]
    found, begin = {}, expected(place, places)
    for hour_usd in WORTHS:
        best = min(point.worth(hour_usd) for point in by_hand)
        reachable = min(point.worth(hour_usd) for points in (*of_copies, by_hand, fixed) for point in points)
        found[hour_usd] = (automatic(place, begin, models, jobs, hour_usd).worth(hour_usd) / best, reachable / best)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--compute", nargs="+", type=float, default=[1.0, 4.0, 16.0, 64.0])
    parser.add_argument("--models", nargs="+", type=int, default=[4], help="M")
    parser.add_argument("--steps", type=int, default=50, help="of each model")
    arguments = parser.parse_args()
    for models in arguments.models:
        for compute in arguments.compute:
            everywhere = conditions(arguments.folder, models * (arguments.steps + 1), compute)
            sloped = [each for each in everywhere if each.slope_s > 0]
            places = [each for each in sloped if any(load in each.name for load in LOADS)] or sloped
            results = [contest(places, place, models, arguments.steps) for place in places]
            print(f"\nM = {models}, {arguments.steps} steps, computing x {compute:g}, {len(places)} profiles")
            for hour_usd in WORTHS:
                ours, reachable = zip(*(result[hour_usd] for result in results), strict=True)
                told = f"V = {hour_usd:<5g} pipeline-auto {mean(ours):.2f} (worst {max(ours):.2f})"
                print(f"{told}   reachable {mean(reachable):.2f}", flush=True)


if __name__ == "__main__":
    main()
