"""Distances for lazy schemes against their definition, computed from the module itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes.scheme import Key, Task
from gradmux.orchestrator.training.distances import DistanceTrainer
from gradmux.orchestrator.training.gradients import CodedResult
from gradmux.orchestrator.training.models import ModelPlan
from tests.orchestrator.training.bench import Run, mlp

WHOLE = Task(0, (0, 1, 2), (1.0, 1.0, 1.0))


def parameters(run: Run, model: int) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten() for p in run.trainer.module(model).parameters()])


def squared(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).square().sum())


class Bench:
    """Two models whose every job is answered by one worker."""

    def __init__(self, folder: Path) -> None:
        plans = [ModelPlan(name, mlp, {"norm": True}, "SGD", {"lr": 0.3}) for name in ("a", "b")]
        self.run = Run(plans, folder)
        self.results: dict[Key, CodedResult] = {}
        self.trainer = DistanceTrainer(self.run.trainer, JobPlan(2, 4), self.results)

    def step(self, job: int) -> None:
        self.trainer.publish(job)
        call = Invocation(job, 0, 1, (Task(job, WHOLE.chunks, WHOLE.coefficients),), 1.0)
        self.results[Key(job, 0, 0)] = self.run.answer(call)[0]
        self.trainer.step(job, [(self.results[Key(job, 0, 0)], 1.0)])


def test_weights_are_those_that_jobs_started_from(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    started = {job: parameters(bench.run, job) for job in (0, 1)}
    for job in range(4):
        bench.step(job)
        started[job + 2] = parameters(bench.run, job % 2)
    for job, other in ((0, 2), (4, 0), (4, 2), (1, 3), (5, 1)):
        expected = squared(started[job], started[other])
        assert expected > 1e-6
        assert bench.trainer.weights(job, other) == pytest.approx(expected, rel=1e-12)
    assert bench.trainer.weights(4, 4) == 0.0


def test_gradients_are_compared_as_sums_over_samples(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.step(0)
    bench.step(1)
    keys = [Key(job, 0, 0) for job in (0, 1)]
    one, other = (bench.results[key].gradient.astype(np.float64) for key in keys)
    for a, b in ((1.0, 0.0), (0.5, 2.0)):
        found = bench.trainer.gradients({keys[0]: a, keys[1]: b}, {keys[1]: 1.0})
        assert found == pytest.approx(float(np.sum((a * one + (b - 1.0) * other) ** 2)), rel=1e-5)


def test_what_is_retired_or_of_another_model_cannot_be_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.step(0)
    bench.trainer.retire(0)
    with pytest.raises(AssertionError, match="weights of job 0 are not held"):
        bench.trainer.weights(2, 0)
    with pytest.raises(AssertionError, match="of different models"):
        bench.trainer.weights(2, 1)
