"""How many parameter sets a second the evaluator manages, beside our own loop and the published simulator.

    python -m benchmarks.evaluator [--large]

First the published search (256 GC, 70,144 SR-SGC and 25,600 M-SGC sets; n = 256, 80 jobs, up to 100 rounds), under the
published wait rule; then each scheme under `earliest`, with late answers, an in-flight cap and a concurrency limit. The
loop plays a few of the same sets in the same run. `--large` adds n = 1,000 with 1,000 rounds. Times are CPU seconds of
this one process; memory is the most it ever held, from a process of its own for each part.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.delays import generate
from orchestrator.evaluate import Batch, Evaluator, Setting, grids
from orchestrator.fleets.profile_fleet import LoadModel
from orchestrator.policies import Earliest, Limits, Mu
from orchestrator.simulate import SimulationOptions, simulate

PUBLISHED_PER_S = 110
"""the published simulator's speed, as measured elsewhere and quoted in docs; it is not run here"""
LOOP_SETS = 2
REPEATS = 3
LOAD = LoadModel(slope_s=1.12)
BY_MU = Mu(1.0, "all", "bursty")
AS_PUBLISHED = Limits(harvest_late=False, invoke_idle=True)
AS_USED = Limits(concurrency=320, in_flight_cap=0.1)


@dataclass(frozen=True)
class Speed:
    """What one part took."""

    name: str
    sets: int
    seconds: float
    loop_s: float
    """the loop's, for one set"""
    peak_mb: float

    def row(self) -> str:
        """One line of the table."""
        each, loop = self.sets / self.seconds, 1.0 / self.loop_s if self.loop_s else float("nan")
        return (
            f"{self.name:34} {self.sets:8,} {self.seconds:9.3f} {each:12,.0f} {loop:9.2f} {each / loop:11,.0f} "
            f"{each / PUBLISHED_PER_S:12,.0f} {self.peak_mb:8.0f}"
        )


HEAD = (
    f"{'':34} {'sets':>8} {'CPU s':>9} {'sets/s':>12} {'loop: /s':>9} {'x the loop':>11} "
    f"{'x published':>12} {'peak MB':>8}"
)


def measure(name: str, setting: Setting, batches: list[Batch], repeats: int = REPEATS) -> Speed:
    """The fastest of a few evaluations of all batches, and the loop on the first sets of the first."""
    seconds = min(_cpu_s(lambda: [Evaluator(setting).play(batch) for batch in batches]) for _ in range(repeats))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loop_s = _cpu_s(lambda: _play_loop(setting, batches[0])) / LOOP_SETS
    return Speed(name, sum(batch.size for batch in batches), seconds, loop_s, peak_mb)


def _cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _play_loop(setting: Setting, batch: Batch) -> None:
    for column in np.linspace(0, batch.size - 1, LOOP_SETS).astype(int).tolist():
        load = None if batch.loads is None else float(batch.loads[column])
        options = SimulationOptions(
            jobs=setting.jobs,
            models=setting.models if batch.scheme == "pipeline" else None,
            wait=setting.wait,
            limits=setting.limits,
            load=replace(setting.load, load=load),
            workers=batch.workers,
        )
        simulate(setting.delays_s, batch.scheme, batch.params(column), options)


def _apart(name: str, setting: Setting, batches: list[Batch], repeats: int = REPEATS) -> Speed:
    """`measure` in a fresh process, so that its peak of memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        speed = pool.apply(measure, (name, setting, batches, repeats))
    print(speed.row(), flush=True)
    return speed


def published(delays_s: np.ndarray, workers: int, jobs: int, repeats: int = REPEATS) -> list[Speed]:
    """The published search, scheme by scheme."""
    setting = Setting(delays_s, jobs=jobs, wait=BY_MU, limits=AS_PUBLISHED, load=LOAD)
    batches = grids.published(workers, min(jobs, 80), 20)
    return [_apart(f"{batch.scheme}, mu rule, n = {workers}", setting, [batch], repeats) for batch in batches]


def earliest(delays_s: np.ndarray, workers: int, jobs: int, repeats: int = REPEATS) -> list[Speed]:
    """Each scheme as the tuner uses it."""
    limits = replace(AS_USED, concurrency=workers + workers // 4)
    setting = Setting(delays_s, jobs=jobs, wait=Earliest(), limits=limits, load=LOAD)
    speeds = []
    for scheme in ("gc", "sr-sgc", "m-sgc", "backup", "pipeline"):
        batches = grids.for_tuning(scheme, workers, models=8, max_load=workers)
        speeds.append(_apart(f"{scheme}, earliest, n = {workers}", setting, batches, repeats))
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also n = 1,000 with 1,000 rounds")
    arguments = parser.parse_args()
    delays_s = generate("lambda-like", rounds=100, workers=256, seed=0).delays_s
    print(HEAD)
    search = published(delays_s, 256, 80)
    total_s, sets = sum(speed.seconds for speed in search), sum(speed.sets for speed in search)
    print(f"{'the published search':34} {sets:8,} {total_s:9.3f} {sets / total_s:12,.0f}")
    quoted_s = sets / PUBLISHED_PER_S
    print(f"{'the published simulator, as quoted':34} {sets:8,} {quoted_s:9.0f} {PUBLISHED_PER_S:12,}   (not run here)")
    earliest(delays_s, 256, 80)
    if arguments.large:
        large_s = generate("lambda-like", rounds=1000, workers=1000, seed=0).delays_s
        published(large_s, 1000, 980, repeats=1)
        earliest(large_s, 1000, 980, repeats=1)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
