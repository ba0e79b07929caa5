"""What exactness costs: rows per second of a CNN and an MLP through workers beside a plain loop, and the trial's time.

The plain torch loop runs on the same cores.

    python -m benchmarks.exactness_cost [--steps 30] [--workers 2 8]

Each model is trained once as it is (free passes) and once with passes of 32 rows. Workers are the emulator's, without
delays. The trial is timed without the user's own imports: the process for it is warm already, as it is for all kinds
of models but the first of a command.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from gradmux import Job, Model, train
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.trial.clean import clean_process

BATCH, ROWS = 512, 4096


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def ten_million() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 2800), nn.ReLU(), nn.Linear(2800, 2700), nn.ReLU(), nn.Linear(2700, 10))


@dataclass(frozen=True)
class Subject:
    """A model and its rows."""

    name: str
    factory: Callable[[], nn.Module]
    x: Any


def subjects() -> list[Subject]:
    generator = np.random.default_rng(0)
    images = generator.standard_normal((ROWS, 3, 16, 16)).astype("f4")
    return [Subject("CNN", cnn, images), Subject("MLP", mlp, generator.standard_normal((ROWS, 784)).astype("f4"))]


def job_of(subject: Subject, steps: int, workers: int, pass_rows: int | None) -> Job:
    y = np.random.default_rng(1).integers(0, 10, ROWS)
    model = Model(subject.name, subject.factory, optimizer=("SGD", {"lr": 0.01}))
    options = {"pass_rows": pass_rows, "workers": workers, "checkpoint_every": 0}
    return Job(models=[model], data=(subject.x, y), batch_size=BATCH, steps=steps, **options)  # type: ignore[arg-type]


def plain_rows_per_s(job: Job, steps: int) -> float:
    """Of the plain loop, on all cores."""
    prepared = prepare_job(job.config(), job.materials(), Path.cwd(), lambda _: MemoryStore())
    Reference.of(prepared, 2)
    began = perf_counter()
    Reference.of(prepared, steps)
    return steps * BATCH / (perf_counter() - began)


def rows_per_s(job: Job, steps: int) -> float:
    """Through workers: the rounds of the run, without its start."""
    with tempfile.TemporaryDirectory() as home:
        trained = train(job, home=Path(home))
    return steps * BATCH / trained.run.wall_s


def trial_s(subject: Subject) -> float:
    """Of one kind of model, with data that are there already and a process that is warm."""
    job = job_of(subject, 1, 2, None)
    prepare_job(job.config(), job.materials(), Path.cwd(), lambda _: MemoryStore())
    began = perf_counter()
    prepare_job(job.config(), job.materials(), Path.cwd(), lambda _: MemoryStore())
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8])
    asked = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    clean_process()
    print(f"{os.cpu_count()} cores, {asked.steps} steps of {BATCH} rows\n")
    print("model  passes  workers  rows/s   of the plain loop")
    for subject in subjects():
        for pass_rows in (None, 32):
            plain = plain_rows_per_s(job_of(subject, asked.steps, 2, pass_rows), asked.steps)
            told = "free" if pass_rows is None else str(pass_rows)
            print(f"{subject.name:5}  {told:6}  plain    {plain:7.0f}   1.00", flush=True)
            for workers in asked.workers:
                found = rows_per_s(job_of(subject, asked.steps, workers, pass_rows), asked.steps)
                print(f"{subject.name:5}  {told:6}  {workers:7}  {found:7.0f}   {found / plain:.2f}", flush=True)
    print("\nprepared once more, the trial included, with a warm process:")
    images = subjects()[1].x
    for subject in (*subjects(), Subject("MLP-9.8M", ten_million, images)):
        print(f"{subject.name:14} {trial_s(subject):.2f} s", flush=True)


if __name__ == "__main__":
    main()
