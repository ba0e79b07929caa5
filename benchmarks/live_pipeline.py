"""The pipeline live: four models on real digits, 64 calls in flight at most, injected delays, real workers.

    python -m benchmarks.live_pipeline [--delays lambda-like] [--steps 12]

Contestants: four independent uncoded jobs of 16 workers each, at once (a process and an emulator each), M-SGC on 64
workers, `pipeline` with fixed (n, s), and `pipeline-auto`. All get the same table of delays, row by round and column by
worker; independent job k has columns 16 k to 16 k + 15. Computing is emulated too: each answer takes the slope times
its load more. Parameters are the fastest of the tuner's grid on another, longer draw of the same generator, in which
rare answers come up: nothing was tuned on the delays that are played.

Told for each: what the run took, from its first dispatch to its last gradient; what the simulator takes for the same
table, in virtual time; their ratio, which may be at most 1.05 (the exit status says so); the seconds billed; and the
largest relative difference of the final weights from ordinary training in one process on the same batches.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from gradmux.infra.local import DelayPlan
from gradmux.infra.local.backend import delay_plan
from gradmux.infra.local.section import EmulatorSection
from gradmux.orchestrator.backends import open_place
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.delays.formats import save_profile
from gradmux.orchestrator.demo.contest import LEARNING_RATES, MODELS
from gradmux.orchestrator.evaluate import Evaluator, Setting
from gradmux.orchestrator.evaluate.grids import for_tuning
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.record import MemoryRecord
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.results import RunResult
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.schemes.registry import get
from gradmux.orchestrator.simulate import NoTrainer
from gradmux.orchestrator.store import open_bucket

CONCURRENCY = 64
PER_JOB = CONCURRENCY // len(MODELS)
MOST = 1.05
READY_S = 120.0
"""so long a job waits for the others to be ready"""
NARROW = (4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)
"""n of the pipeline that are tried"""
BATCH = 1024
SEEDS = (0, 1)
"""of the delays that are played, and of those that parameters are tuned on"""
TUNED_STEPS = 200
"""of each model, that parameters are tuned on"""
Params = dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Contestant:
    """Jobs that run at once: one with all models, or one for each."""

    label: str
    jobs: tuple[Prepared, ...]

    @property
    def parameters(self) -> str:
        """In the papers' letters: `B=1 W=2 lambda=9`."""
        written = self.jobs[0].config.scheme.parameters
        known = {each.name: each.letter for each in get(self.jobs[0].config.scheme.name).parameters}
        return " ".join(f"{known[name]}={value}" for name, value in written.items() if name != "code") or "-"


@dataclass(frozen=True, slots=True)
class Took:
    """One contestant, of all its jobs; seconds."""

    real_s: float
    """of the job that took longest"""
    simulated_s: float
    billed_s: float
    simulated_billed_s: float
    difference: float
    """|weights - ordinary training's| / |ordinary training's|, the largest of any model"""

    @property
    def ratio(self) -> float:
        """Measured over simulated."""
        return self.real_s / self.simulated_s


class InjectedDelays(DelayTable):
    """What the emulator injects, for second attempts too; `ProfileFleet` adds the load's part."""

    def __init__(self, plan: DelayPlan, workers: int) -> None:
        super().__init__(np.array(plan.delays_s), workers)
        self._plan = plan

    def delay_s(self, round_index: int, worker: int, attempt: int) -> float:
        return self._plan.delay_s(round_index, worker, attempt, self._plan.base_load)


# --- who takes part --------------------------------------------------------------------------------------------------


def contestants(played: DelayProfile, other: DelayProfile, steps: int, folder: Path) -> Iterator[Contestant]:
    """Parameters are tuned on `other`, which lasts TUNED_STEPS."""
    everything = range(len(MODELS))
    own = [
        job(f"own-{k}", {"name": "uncoded"}, [k], PER_JOB, steps, columns(played, k * PER_JOB, PER_JOB), folder)
        for k in everything
    ]
    yield Contestant(f"{len(MODELS)} independent uncoded jobs", tuple(own))
    for scheme, numbers in (("m-sgc", (CONCURRENCY,)), ("pipeline", NARROW)):
        section = {"name": scheme, **fastest(scheme, numbers, other)}
        yield Contestant(scheme, (job(scheme, section, everything, CONCURRENCY, steps, played, folder),))
    section = {"name": "pipeline-auto"}
    yield Contestant("pipeline-auto", (job("auto", section, everything, CONCURRENCY, steps, played, folder),))


def columns(profile: DelayProfile, first: int, count: int) -> DelayProfile:
    """Some of its workers."""
    delays_s = profile.delays_s[:, first : first + count]
    return DelayProfile(delays_s, load=profile.load, slope_s=profile.slope_s, base_load=profile.base_load)


def fastest(scheme: str, numbers: Sequence[int], profile: DelayProfile) -> Params:
    """Of all that the tuner would try."""
    load = LoadModel(slope_s=profile.slope_s or 0.0, base_load=profile.reference_load())
    limits, models = Limits(concurrency=CONCURRENCY), len(MODELS)
    evaluator = Evaluator(Setting(profile.delays_s, jobs=TUNED_STEPS * models, models=models, limits=limits, load=load))
    tried = [batch for n in numbers for batch in for_tuning(scheme, n, models=models, max_load=float(n)) if batch.size]
    played = evaluator.play_all(tried)
    batch, took = min(zip(tried, played, strict=True), key=lambda pair: float(pair[1].total_s.min()))
    return batch.params(int(np.argmin(took.total_s)))


def job(
    name: str, scheme: Params, models: Sequence[int], workers: int, steps: int, delays: DelayProfile, folder: Path
) -> Prepared:
    """These models (by their index) under one scheme."""
    path = folder / f"{name}.npz"
    save_profile(delays, path)
    described = [{**MODELS[index], "optimizer": {"name": "Adam", "lr": LEARNING_RATES[index]}} for index in models]
    config = parse_job(
        {
            "name": name,
            "cluster": {"workers": workers, "concurrency": CONCURRENCY},
            "scheme": scheme,
            "data": {"train": "digits:train", "eval": "digits:test", "batch_size": BATCH},
            "training": {"steps": steps},
            "models": described,
            "emulator": {"delays": str(path)},
        },
        source="live",
    )
    return prepare_job(config, Materials(), folder, open_bucket)


# --- real and simulated ----------------------------------------------------------------------------------------------


def play(contestant: Contestant, folder: Path) -> Took:
    """Runs all jobs at once, a process each, and simulates them."""
    spawn = get_context("spawn")
    ready, told = spawn.Barrier(len(contestant.jobs)), spawn.SimpleQueue()
    processes = [
        spawn.Process(target=run, args=(index, prepared.config, folder, ready, told))
        for index, prepared in enumerate(contestant.jobs)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"{contestant.label}: a job failed, see above")
    results = [result for _, result in sorted((told.get() for _ in processes), key=itemgetter(0))]
    imitated = [simulated(prepared) for prepared in contestant.jobs]
    return Took(
        real_s=max(result.wall_s for result in results),
        simulated_s=max(wall_s for wall_s, _ in imitated),
        billed_s=sum(result.billed_s for result in results),
        simulated_billed_s=sum(billed_s for _, billed_s in imitated),
        difference=max(map(difference, contestant.jobs, results)),
    )


def run(index: int, config: JobConfig, folder: Path, ready: Barrier, told: SimpleQueue[tuple[int, RunResult]]) -> None:
    """One job to its last answer, on an emulator of its own; it begins when all jobs are ready."""
    torch.set_num_threads(1)
    prepared = prepare_job(config, Materials(), folder, open_bucket)
    paths = keep_job(prepared, folder, folder)
    with open_place(config) as place:
        ready.wait(READY_S)
        told.put((index, run_job(prepared, place, paths).run))


def difference(prepared: Prepared, result: RunResult) -> float:
    """|weights - ordinary training's| / |ordinary training's|, the largest of any model."""
    reference = Reference.of(prepared)
    trained = deepcopy(dict(reference.modules))
    for model in result.models:
        trained[model.name].load_state_dict(load_file(model.checkpoint))
    return reference.difference(trained)


def simulated(prepared: Prepared) -> tuple[float, float]:
    """(wall, billed) seconds of the job in virtual time: the same loop over the delays that its emulator injects."""
    section, scheme = prepared.config.section("emulator", EmulatorSection), prepared.scheme()
    workers = prepared.config.cluster.most_workers
    plan = delay_plan(section.delays, workers=workers, time_scale=section.time_scale, seed=section.seed)
    fleet = ProfileFleet(InjectedDelays(plan, scheme.workers), LoadModel(plan.slope_s, plan.base_load))
    rounds = prepared.rounds(scheme)
    loop = Loop(plan=prepared.plan, rounds=rounds, fleet=fleet, trainer=NoTrainer(), recorder=MemoryRecord())
    return loop.run().wall_s, loop.drain(patience_s=float("inf")).billed_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", default="lambda-like", help="a generator")
    parser.add_argument("--steps", type=int, default=12, help="of each model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = len(MODELS)
    played, other = (
        generate(arguments.delays, rounds=(steps + 1) * models, workers=CONCURRENCY, seed=seed)
        for steps, seed in zip((arguments.steps, TUNED_STEPS), SEEDS, strict=True)
    )
    print(f"{models} models, {arguments.steps} steps each, {CONCURRENCY} calls in flight at most, {arguments.delays}")
    print(f"{'':28} {'parameters':22} {'real, s':>8} {'simul., s':>10} {'ratio':>6} {'billed, s':>10} ", end="")
    print(f"{'simul., s':>10} {'weights differ':>15}")
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="gradmux-live-") as folder:
        for contestant in contestants(played, other, arguments.steps, Path(folder)):
            took = play(contestant, Path(folder))
            worst = max(worst, took.ratio)
            print(
                f"{contestant.label:28} {contestant.parameters:22} {took.real_s:8.2f} {took.simulated_s:10.2f} "
                f"{took.ratio:6.3f} {took.billed_s:10.1f} {took.simulated_billed_s:10.1f} {took.difference:15.1e}",
                flush=True,
            )
    print(f"the worst run took {worst:.3f} times the simulator's time; at most {MOST}")
    return worst > MOST


if __name__ == "__main__":
    sys.exit(main())
