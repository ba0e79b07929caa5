"""What each idea around the pipeline is worth: one line per variant, for the log of experiments (docs/experiments.md).

    python -m benchmarks.pipeline_variants [--compute 1 16] [--jobs 200] [--only auto]

4 models, C = 256, over the profiles of `schemes_on_profiles` and made as long in the same way; times and bills are
geometric means, relative to the paper's gradient coding with its best s. Everything is played by the loop itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.schemes_on_profiles import (
    CONCURRENCY,
    FOLDER,
    WORKERS,
    Condition,
    Contest,
    by_the_paper,
    conditions,
    mean,
)
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Backup, Limits
from gradmux.orchestrator.schemes.overlapping import OverlappingScheme
from gradmux.orchestrator.schemes.registry import register
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    Context,
    Decoding,
    Key,
    Parameter,
    Params,
    Scheme,
    SchemeInfo,
    Slots,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate

MODELS = 4
NEVER = Backup(share=None, slack=None)


class StreamedJob:
    """One job whose workers send K of Q chunks, one message each, beginning at different chunks."""

    def __init__(self, job: int, workers: int, chunks: int, messages: int) -> None:
        self.job, self._workers, self._chunks, self._messages = job, workers, chunks, messages
        self._first: dict[int, Key] = {}

    @property
    def complete(self) -> bool:
        """Is every chunk in?"""
        return len(self._first) == self._chunks

    def slots(self, worker: int) -> Slots:
        """Chunk after chunk, from the worker's own place in the ring."""
        return tuple(Task(self.job, (self._chunk(worker, k),), (1.0,), message=k) for k in range(self._messages))

    def _chunk(self, worker: int, message: int) -> int:
        return (worker * self._chunks // self._workers + message) % self._chunks

    def add(self, key: Key) -> None:
        """Takes one message."""
        self._first.setdefault(self._chunk(key.worker, key.slot), key)

    def useful(self) -> list[Key]:
        """The first result of each chunk, by chunk."""
        return [self._first[chunk] for chunk in sorted(self._first)]

    def combine(self, estimate: bool) -> Decoding:
        """Weight 1 for each."""
        assert estimate or self.complete
        missing = 1.0 - len(self._first) / self._chunks
        return Decoding(dict.fromkeys(self.useful(), 1.0), float(missing > 0), 1.0, missing)


class Streamed(OverlappingScheme[StreamedJob]):
    """The pipeline with partial work of stragglers: what a worker has done counts, chunk by chunk."""

    def __init__(self, messages: int, chunks: int, context: Context) -> None:
        sizes = np.full(chunks, 1.0 / chunks)
        super().__init__("streamed", context, delay=0, chunk_sizes=sizes, binary=True)
        self.messages = messages

    def assign(self, t: int) -> Assignment:
        """K messages of every worker."""
        job = self._active[t] = StreamedJob(t, self.workers, len(self.chunk_sizes), self.messages)
        return {worker: job.slots(worker) for worker in range(self.workers)}

    def heard(self, key: Key) -> None:
        """One message."""
        job = self._active.get(key.round)
        if job is not None:
            job.add(key)

    def wanted(self, t: int) -> tuple[int, ...]:
        """Nobody: these variants are played without backups."""
        return ()

    def straggler_model(self, name: str) -> StragglerModel:
        raise ConfigError("streamed has no straggler model")


def build_streamed(params: Params, context: Context) -> Scheme:
    """n, K and Q as they are."""
    inner = replace(context, workers=int(params["per_job"]))
    return Streamed(int(params["messages"]), int(params["chunks"]), inner)


STREAMED = SchemeInfo(
    name="streamed",
    title="Experiment: the pipeline with several messages per worker",
    build=build_streamed,
    parameters=(
        Parameter("per_job", "n", int, None, "workers of one job"),
        Parameter("chunks", "Q", int, None, "chunks of a batch"),
        Parameter("messages", "K", int, None, "chunks that each worker sends, one after the other"),
    ),
    constraints="K <= Q",
    load="K/Q",
    delay="0",
    tolerates="",
    costs="",
    avoid="",
    source="after Ozfatura, Ulukus, Gunduz 2019 (multi-message communication)",
)


@dataclass(frozen=True)
class Variant:
    """One line."""

    label: str
    scheme: str
    grid: tuple[Mapping[str, int | float | str], ...]
    """parameter sets; the best of them for each profile counts"""
    limits: Limits = field(default_factory=Limits)
    workers: int = WORKERS
    by_heart: bool = False
    """the profile's rows return with their workers in the same order"""


def variants(kind: str) -> Iterator[Variant]:
    """All ideas of one kind."""
    if kind == "auto":
        yield Variant("pipeline-auto", "pipeline-auto", ({},))
        for busy in (0.6, 0.7, 0.9, 1.0):
            yield Variant(f"  rho = {busy}", "pipeline-auto", ({"busy": busy},))
        yield Variant("  without backups", "pipeline-auto", ({},), Limits(backup=NEVER))
        # One worker fewer than the profile has: its columns are then dealt anew each round, and nothing persists.
        yield Variant("  without history", "pipeline-auto", ({},), workers=WORKERS - 1)
        yield Variant("  rows learnt by heart (not real)", "pipeline-auto", ({},), by_heart=True)
    if kind == "fixed":
        sizes = tuple({"per_job": n, "stragglers": s} for n, s in ((16, 15), (32, 31), (40, 19), (48, 3), (48, 1)))
        yield Variant("pipeline, best of 5 (n, s)", "pipeline", sizes)
        yield Variant("  dispatches split", "pipeline", sizes, Limits(split=True))
        for slack in (0.25, 1.0):
            backup = Backup(share=None, slack=slack, times=2)
            yield Variant(f"  groups again after {1 + slack:g} x first", "pipeline", sizes, Limits(backup=backup))
        for messages in (1, 2, 4):
            grid = tuple(
                {"per_job": n, "chunks": groups * messages, "messages": messages}
                for n, groups in ((16, 1), (32, 1), (40, 2), (48, 12), (48, 24))
            )
            yield Variant(f"streamed, K = {messages}", "streamed", grid)


def cost(variant: Variant, place: Condition, jobs: int) -> tuple[float, float]:
    """(total, billed) seconds of the variant's best parameters."""
    limits = replace(variant.limits, concurrency=CONCURRENCY)
    options = SimulationOptions(
        jobs=jobs, models=MODELS, limits=limits, load=LoadModel(slope_s=place.slope_s), workers=variant.workers
    )
    runs: list[Simulation] = [simulate(place.delays_s, variant.scheme, params, options) for params in variant.grid]
    best = min(runs, key=lambda run: run.total_s)
    assert best.in_flight_max <= CONCURRENCY
    return best.total_s, best.billed_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", nargs="+", type=float, default=[1.0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--only", choices=("auto", "fixed"))
    arguments = parser.parse_args()
    register(STREAMED)
    for compute in arguments.compute:
        fresh, by_heart = (
            conditions(FOLDER, arguments.jobs + MODELS, compute, shuffled=shuffled) for shuffled in (True, False)
        )
        contest = Contest(fresh, MODELS, arguments.jobs)
        paper = contest.each(contest.grid(by_the_paper("gc", MODELS), by_mu=True).best)
        print(f"computing x {compute:g}, {arguments.jobs} jobs, {len(fresh)} profiles")
        for kind in [arguments.only] if arguments.only else ["auto", "fixed"]:
            for variant in variants(kind):
                costs = [cost(variant, place, arguments.jobs) for place in (by_heart if variant.by_heart else fresh)]
                took = mean([total_s / p.total_s for (total_s, _), p in zip(costs, paper, strict=True)])
                bill = mean([billed_s / p.billed_s for (_, billed_s), p in zip(costs, paper, strict=True)])
                print(f"  {variant.label:36} time {took:.3f}   billed {bill:.3f}", flush=True)


if __name__ == "__main__":
    main()
