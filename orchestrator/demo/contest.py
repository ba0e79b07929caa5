"""One job, six schemes, one emulator with one set of delays: what is run, and what was measured.

Every number comes from the runs themselves; nothing is taken from elsewhere. Read next: `reference.py`, `tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gradmux.orchestrator.backends import Place, open_place
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.results import RunResult, Trained
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.stopping import Stop, stop_on_signals
from gradmux.orchestrator.runs.train import Watch, run_job

MODELS = (
    {"name": "mlp-32", "factory": "gradmux.orchestrator.demo.models:mlp", "args": {"hidden": 32}},
    {"name": "mlp-128", "factory": "gradmux.orchestrator.demo.models:mlp", "args": {"hidden": 128}},
    {"name": "mlp-64x2", "factory": "gradmux.orchestrator.demo.models:mlp", "args": {"hidden": 64, "depth": 2}},
    {"name": "cnn-4", "factory": "gradmux.orchestrator.demo.models:cnn", "args": {"channels": 4}},
)
LEARNING_RATES = (3e-2, 2e-2, 3e-2, 3e-2)


@dataclass(frozen=True, slots=True)
class Contestant:
    """One scheme of the comparison."""

    label: str
    scheme: Mapping[str, Any]
    """the section [scheme]"""

    @property
    def parameters(self) -> str:
        """As the papers write them: `B=1 W=2 lambda=4`."""
        shown = {key: value for key, value in self.scheme.items() if key not in ("name", "wait")}
        return " ".join(f"{key}={value}" for key, value in shown.items()) or "-"


@dataclass(frozen=True, slots=True)
class Size:
    """How large the demonstration is."""

    workers: int
    steps: int
    """per model"""
    time_scale: float
    """of the injected delays: 0.1 is ten times as fast as life"""
    stragglers: int
    """s of gradient coding"""
    distinct: int
    """lambda of the sequential schemes"""
    narrow: int
    """n of the pipeline: a quarter of the workers for each of the four models"""


FULL = Size(workers=32, steps=12, time_scale=0.1, stragglers=3, distinct=4, narrow=8)
QUICK = Size(workers=8, steps=3, time_scale=0.02, stragglers=1, distinct=2, narrow=2)


def contestants(size: Size) -> tuple[Contestant, ...]:
    """Uncoded comes first: the others are measured against it."""
    coded, sequential = {"s": size.stragglers}, {"B": 1, "W": 2, "lambda": size.distinct}
    return (
        Contestant("uncoded", {"name": "uncoded"}),
        Contestant("gc, the papers' rule", {"name": "gc", **coded, "wait": "mu", "mu": 1.0}),
        Contestant("gc, earliest decode", {"name": "gc", **coded}),
        Contestant("sr-sgc", {"name": "sr-sgc", **sequential}),
        Contestant("m-sgc", {"name": "m-sgc", **sequential}),
        Contestant("pipeline", {"name": "pipeline", "n": size.narrow, "s": 1}),
    )


def job_config(size: Size, scheme: Mapping[str, Any], faults: Mapping[str, float]) -> JobConfig:
    """The job, under one scheme. `faults`: what goes wrong, kind -> share."""
    optimizers = [{"optimizer": {"name": "Adam", "lr": rate}} for rate in LEARNING_RATES]
    return parse_job(
        {
            "name": f"demo-{scheme['name']}",
            "cluster": {"workers": size.workers},
            "scheme": dict(scheme),
            "data": {"train": "digits:train", "eval": "digits:test", "batch_size": 512},
            # In float32 the first steps of Adam make full steps of what is rounding in a gradient near zero.
            "training": {"steps": size.steps, "dtype": "float64"},
            "models": [{**model, **optimizer} for model, optimizer in zip(MODELS, optimizers, strict=True)],
            "emulator": {"delays": "lambda-like", "time_scale": size.time_scale, "faults": dict(faults)},
        },
        source="demo",
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """What one scheme did."""

    contestant: Contestant
    result: RunResult
    weight_difference: float
    """largest over the models of |weights - ordinary training's| / |ordinary training's|"""

    def to_dict(self, uncoded_s: float) -> dict[str, Any]:
        """For --json."""
        return {
            "label": self.contestant.label,
            **self.result.to_dict(),
            "time_ratio": self.result.wall_s / uncoded_s,
            "weight_difference": self.weight_difference,
        }


@dataclass(frozen=True, slots=True)
class Contest:
    """The whole comparison; `entries[0]` is uncoded."""

    size: Size
    entries: list[Entry] = field(default_factory=list)

    @property
    def uncoded_s(self) -> float:
        """The time that the others are compared with."""
        return self.entries[0].result.wall_s

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "workers": self.size.workers,
            "models": [model["name"] for model in MODELS],
            "steps": self.size.steps,
            "time_scale": self.size.time_scale,
            "schemes": [entry.to_dict(self.uncoded_s) for entry in self.entries],
        }


def prepare(size: Size, faults: Mapping[str, float]) -> list[tuple[Contestant, Prepared]]:
    """Every job of the comparison, checked."""
    return [
        (contestant, prepare_job(job_config(size, contestant.scheme, faults), Materials(), Path.cwd(), _no_bucket))
        for contestant in contestants(size)
    ]


def run(size: Size, faults: Mapping[str, float], home: Path, watch: Watch, tell: Callable[[str], None]) -> Contest:
    """The whole comparison on an emulator of its own; signals ask it to end. Raises: what ends a run."""
    jobs, stop = prepare(size, faults), Stop()
    pace = f"Lambda-like delays, {1 / size.time_scale:g} times as fast as life"
    tell(f"Starting the emulator and {size.workers} workers ({pace}), then warming them up")
    with open_place(jobs[0][1].config) as place, stop_on_signals(stop, tell):
        return hold(jobs, size, place, home, watch, stop)


def hold(
    jobs: list[tuple[Contestant, Prepared]], size: Size, place: Place, home: Path, watch: Watch, stop: Stop
) -> Contest:
    """Runs one scheme after the other at the same place, each from the first row of the same delay matrix."""
    contest = Contest(size)
    reference = Reference.of(jobs[0][1])
    _warm_up(size, place)
    for contestant, prepared in jobs:
        paths = keep_job(prepared, home, Path.cwd())
        with watch(contestant.label, prepared.plan.jobs) as on_step:
            trained: Trained = run_job(prepared, place, paths, on_step, stop)
        contest.entries.append(Entry(contestant, trained.run, reference.difference(trained)))
    return contest


def _warm_up(size: Size, place: Place) -> None:
    """One step of every model, so that no scheme pays for the first start of the workers."""
    one_step = replace(size, steps=1)
    prepared = prepare_job(job_config(one_step, {"name": "uncoded"}, {}), Materials(), Path.cwd(), _no_bucket)
    with TemporaryDirectory() as folder:
        run_job(prepared, place, keep_job(prepared, Path(folder), Path.cwd()))


def _no_bucket(bucket: str) -> Any:
    raise AssertionError(f"the demonstration's data lie in no bucket ({bucket})")
