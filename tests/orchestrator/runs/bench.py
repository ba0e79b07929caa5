"""Whole runs in virtual time: the real folder, lock, record, checkpoints and loop around a small exact problem.

`SmallJob.live` is one life of a run, as `runs/train.py` plays it, with numpy models and a fleet whose clock jumps.
Every life meets other delays and failures, so that other workers answer first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gradmux.orchestrator.backends import PlaceNote
from gradmux.orchestrator.disk import Disk, write_whole
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Invocation, ModelState, StepResult
from gradmux.orchestrator.record import EndLine, FileRecord, Header
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.checkpoints import Checkpoints, Manifest, saved_steps
from gradmux.orchestrator.runs.history import DONE, UNRECORDED, read_history
from gradmux.orchestrator.runs.keeper import Keeper
from gradmux.orchestrator.runs.life import living, new_store_name, settle, store_name
from gradmux.orchestrator.runs.mirror import Mirror, NoMirror
from gradmux.orchestrator.runs.paths import RunPaths, create_run
from gradmux.orchestrator.runs.play import play
from gradmux.orchestrator.runs.standing import unrecorded
from gradmux.orchestrator.runs.stopping import Stop
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, FloatArray, Scheme
from gradmux.orchestrator.start import start_after
from gradmux.orchestrator.store import Keys, MemoryStore
from tests.orchestrator.quadratic import QuadraticTrainer
from tests.orchestrator.runs.disks import FAST_DISK as FAST

PLACE = PlaceNote("local", timeout_s=5.0)


class NumpyModels:
    """The jobs of one life on the quadratic problem of the whole run; implements `Trainer` and `Resumable`."""

    def __init__(self, whole: JobPlan, plan: JobPlan, chunk_sizes: FloatArray) -> None:
        self._inner = QuadraticTrainer(whole, chunk_sizes)
        self._plan = plan
        self._steps = [0] * whole.models
        self.applied: list[tuple[int, int]] = []
        """(model, step), in order"""

    def publish(self, job: int) -> None:
        self._inner.publish(job + self._plan.first)

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        model = self._plan.model(job)
        assert self._plan.step(job) == self._steps[model], "steps of a model are applied in order, each once"
        told = self._inner.step(job + self._plan.first, results)
        self._steps[model] += 1
        self.applied.append((model, self._plan.step(job)))
        return told

    def retire(self, job: int) -> None:
        self._inner.retire(job + self._plan.first)
        self._inner.snapshots.pop(job + self._plan.first, None)

    def state(self, model: int) -> ModelState:
        return ModelState(self._steps[model], self._inner.weights[model].tobytes(), b"numpy")

    def load_state(self, model: int, state: ModelState) -> None:
        self._inner.weights[model] = np.frombuffer(state.weights).copy()
        self._steps[model] = state.steps

    def weights(self) -> list[str]:
        """By model, to the last bit."""
        return [weights.tobytes().hex() for weights in self._inner.weights]

    def compute(self, call: Invocation) -> Mapping[int, FloatArray]:
        first = self._plan.first
        return {
            slot: sum(
                (
                    c * self._inner.chunk_gradient(
                        task.job + first, chunk, self._inner.snapshots[task.job + first]
                    )
                    for chunk, c in zip(task.chunks, task.coefficients, strict=True)
                ),
                np.zeros(self._inner.size),
            )
            for slot, task in enumerate(call.slots)
            if task is not None
        }  # fmt: skip


@dataclass(frozen=True)
class SmallJob:
    """A job that takes milliseconds."""

    scheme: str = "gc"
    params: Mapping[str, int | str] = field(default_factory=lambda: {"s": 1})
    workers: int = 6
    models: int = 2
    steps: int = 5
    every: int = 2
    failing: float = 0.05
    """share of first attempts that fail"""
    limits: Limits = field(default_factory=lambda: Limits(attempts=20))

    @property
    def whole(self) -> JobPlan:
        return JobPlan(self.models, self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"model-{index}" for index in range(self.models))

    def submit(self, home: Path, disk: Disk = FAST) -> RunPaths:
        def fill(paths: RunPaths) -> None:
            write_whole(paths.store_name, [new_store_name("small").encode()], disk)
            write_whole(paths.job, [json.dumps({"name": "small", "scheme": {"name": self.scheme}}).encode()], disk)

        return create_run(home, "small", fill, disk)

    def live(
        self,
        paths: RunPaths,
        disk: Disk = FAST,
        *,
        stop: Stop | None = None,
        between: Callable[[], None] = lambda: None,
        epoch: int | None = None,
        store: MemoryStore | None = None,
    ) -> list[str]:
        """One life, to the end; the final weights. `between` is called between events, `store` keeps the folder."""
        stop = stop or Stop(look_s=0.0)
        with living(paths, epoch, disk) as life:
            settle(paths, life, PLACE, disk)
            stop.watch(paths, life.epoch)
            checkpoints = Checkpoints(paths.checkpoints, disk)
            saved = checkpoints.newest()
            manifest = Manifest(paths.run, life.epoch, self.names, saved_steps(saved and saved.manifest, self.names))
            start = start_after(manifest.steps, self.steps)
            record = FileRecord(paths.record, disk=disk)
            try:
                scheme = self._scheme(start.plan if start.plan.jobs else self.whole)
                trainer = NumpyModels(self.whole, start.plan, scheme.chunk_sizes)
                for model, state in enumerate(() if saved is None else saved.states):
                    trainer.load_state(model, state)
                mirror = NoMirror() if store is None else Mirror(store, Keys(store_name(paths)), paths, life, "s3://b")
                mirror.begin()
                keeper = Keeper(record, checkpoints, trainer, manifest, every=self.every, saved=mirror.saved)
                lost = unrecorded(read_history(paths.record), manifest.steps)
                keeper.write(self._header(paths, scheme, start.plan, life.epoch, manifest.steps, lost))
                if start.finished:
                    keeper.write(EndLine("done", 0.0, "nothing was left to do"))
                else:
                    rounds = Rounds(
                        scheme, start.plan, Earliest(), self.limits, already=start.already, epoch=life.epoch
                    )

                    def check() -> None:
                        between()
                        stop.check()

                    loop = Loop(
                        plan=start.plan,
                        rounds=rounds,
                        fleet=self._fleet(trainer, scheme, life.epoch),
                        trainer=trainer,
                        recorder=keeper,
                        should_stop=check,
                    )
                    play(loop, keeper, drain_s=1e9, recall=lambda: None)
                weights = trainer.weights()
                write_whole(paths.result, [json.dumps({"weights": weights, "models": []}).encode()], disk)
                mirror.end()
                return weights
            finally:
                record.close()

    def _scheme(self, plan: JobPlan) -> Scheme:
        context = Context(workers=self.workers, jobs=plan.jobs, models=plan.models, seed=3, concurrency=64)
        return build_scheme(self.scheme, parse_params(get(self.scheme), self.params), context)

    def _fleet(self, trainer: NumpyModels, scheme: Scheme, epoch: int) -> ProfileFleet:
        rng = np.random.default_rng((7, epoch))
        delays = rng.exponential(1.0, size=(16, scheme.workers)) + 0.5
        delays[rng.random(delays.shape) < self.failing] = np.inf
        return ProfileFleet(DelayTable(delays, scheme.workers, seed=epoch), LoadModel(slope_s=0.5), trainer.compute)

    def _header(
        self, paths: RunPaths, scheme: Scheme, plan: JobPlan, epoch: int, done: tuple[int, ...], lost: tuple[int, ...]
    ) -> Header:
        return Header(
            run=paths.run, scheme=self.scheme, params=dict(self.params), workers=scheme.workers, models=self.models,
            steps=self.steps, seed=3, wait={}, limits={}, first=plan.first, epoch=epoch, names=self.names,
            extra={DONE: done, UNRECORDED: lost},
        )  # fmt: skip


def check_record(paths: RunPaths, job: SmallJob) -> None:
    """Every gradient was applied exactly once, whatever ended the lives."""
    assert read_history(paths.record).steps == [job.steps] * job.models


__all__ = ["FAST", "NumpyModels", "SmallJob", "check_record"]
