"""How many parameter sets a second the evaluator manages, beside our own loop and the published simulator.

    python -m benchmarks.evaluator [--large]

First the published search (256 GC, 70,144 SR-SGC and 25,600 M-SGC sets; n = 256, 80 jobs, up to 100 rounds), under the
published wait rule; then each scheme under `earliest`, with late answers, an in-flight cap and a concurrency limit. The
loop plays a few of the same sets in the same run; last the tuner as a whole. `--large` takes n = 1,000 with 1,000
rounds instead (minutes), with a tenth of the published grid and without the loop. Times are CPU seconds of one process;
memory is the most that it ever held, a process of its own for each part.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.evaluate import Batch, Evaluator, Setting, grids
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Earliest, Limits, Mu
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from gradmux.orchestrator.tune import TuneOptions, tune

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
    loop_s: float | None
    """the loop's, for one set; None where it did not play"""
    peak_mb: float

    def row(self) -> str:
        """One line of the table."""
        each = self.sets / self.seconds
        loop = float("nan") if self.loop_s is None else 1.0 / self.loop_s
        return (
            f"{self.name:34} {self.sets:8,} {self.seconds:9.3f} {each:12,.0f} {loop:9.2f} {each / loop:11,.0f} "
            f"{each / PUBLISHED_PER_S:12,.0f} {self.peak_mb:8.0f}"
        )


HEAD = (
    f"{'':34} {'sets':>8} {'CPU s':>9} {'sets/s':>12} {'loop: /s':>9} {'x the loop':>11} "
    f"{'x published':>12} {'peak MB':>8}"
)


def measure(name: str, setting: Setting, batches: list[Batch], repeats: int = REPEATS) -> Speed:
    """The fastest of a few evaluations of all batches, and the loop on a few sets; not in the large case, of one."""
    seconds = min(_cpu_s(lambda: [Evaluator(setting).play(batch) for batch in batches]) for _ in range(repeats))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loop_s = None if repeats == 1 else _cpu_s(lambda: _play_loop(setting, batches[0])) / LOOP_SETS
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


def published(delays_s: np.ndarray, workers: int, jobs: int, part: int = 1) -> list[Speed]:
    """The published search, scheme by scheme; `part`: every so many-th of its sets."""
    setting = Setting(delays_s, jobs=jobs, wait=BY_MU, limits=AS_PUBLISHED, load=LOAD)
    batches = [batch.take(np.arange(0, batch.size, part)) for batch in grids.published(workers, 80, 20)]
    repeats = REPEATS if part == 1 else 1
    return [_apart(f"{batch.scheme}, mu rule, n = {workers}", setting, [batch], repeats) for batch in batches]


def earliest(delays_s: np.ndarray, workers: int, jobs: int, models: int = 8, repeats: int = REPEATS) -> list[Speed]:
    """Each scheme as the tuner uses it."""
    limits = replace(AS_USED, concurrency=workers + workers // 4)
    setting = Setting(delays_s, jobs=jobs, wait=Earliest(), limits=limits, load=LOAD)
    speeds = []
    for scheme in ("gc", "sr-sgc", "m-sgc", "backup", "pipeline"):
        batches = grids.for_tuning(scheme, workers, models=models, max_load=workers)
        speeds.append(_apart(f"{scheme}, earliest, n = {workers}", setting, batches, repeats))
    return speeds


def whole(delays_s: np.ndarray, jobs: int) -> None:
    """The tuner itself, with resamples and cross-validation."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        evaluated, seconds, peak_mb = pool.apply(_tune, (delays_s, jobs))
    name = f"tune, n up to {delays_s.shape[1]}, {jobs} jobs"
    print(f"{name:34} {evaluated:8,} {seconds:9.3f} {'':47} {peak_mb:8.0f}", flush=True)


def _tune(delays_s: np.ndarray, jobs: int) -> tuple[int, float, float]:
    start = time.process_time()
    result = tune(DelayProfile(delays_s, slope_s=LOAD.slope_s), TuneOptions(jobs=jobs))
    return result.evaluated, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="n = 1,000 with 1,000 rounds instead")
    arguments = parser.parse_args()
    print(HEAD)
    if arguments.large:
        delays_s = generate("lambda-like", rounds=1000, workers=1000, seed=0).delays_s
        published(delays_s, 1000, 980, part=10)
        earliest(delays_s, 1000, 980, models=2, repeats=1)
        whole(delays_s, 1000)
        return
    delays_s = generate("lambda-like", rounds=100, workers=256, seed=0).delays_s
    search = published(delays_s, 256, 80)
    total_s, sets = sum(speed.seconds for speed in search), sum(speed.sets for speed in search)
    print(f"{'the published search':34} {sets:8,} {total_s:9.3f} {sets / total_s:12,.0f}")
    quoted_s = sets / PUBLISHED_PER_S
    print(f"{'the published simulator, as quoted':34} {sets:8,} {quoted_s:9.0f} {PUBLISHED_PER_S:12,}   (not run here)")
    earliest(delays_s, 256, 80)
    whole(delays_s, 100)


if __name__ == "__main__":
    main()
