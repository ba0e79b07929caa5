"""A training problem in numpy, small and exact: each chunk's loss is a quadratic of the weights.

`QuadraticTrainer` is a real trainer (snapshots, steps) in float64 and `compute` a real worker, so that the loop can be
run in virtual time and compared with plain gradient descent to 1e-12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.schemes.scheme import FloatArray


class QuadraticTrainer:
    """M weight vectors; job t's chunk j has gradient f_j (A_t w - b_t) + c_tj, with sum over j of c_tj = 0."""

    rate = 0.2

    def __init__(self, plan: JobPlan, chunk_sizes: FloatArray, size: int = 5, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.plan, self.sizes, self.size = plan, chunk_sizes, size
        self.weights = [rng.normal(size=size) for _ in range(plan.models)]
        self._curvature = rng.uniform(0.1, 1.0, size=(plan.jobs, size))
        self._target = rng.normal(size=(plan.jobs, size))
        self._seed = seed
        self.snapshots: dict[int, FloatArray] = {}
        self.order: list[int] = []

    def publish(self, job: int) -> None:
        assert job not in self.snapshots, "a snapshot is published once"
        frozen = self.weights[self.plan.model(job)].copy()
        frozen.setflags(write=False)
        self.snapshots[job] = frozen

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        gradient = sum((weight * result for result, weight in results), np.zeros(self.size))
        model = self.plan.model(job)
        assert np.array_equal(self.snapshots[job], self.weights[model]), "the job's weights are still its model's"
        self.weights[model] = self.weights[model] - self.rate * gradient
        self.order.append(job)
        return StepResult(loss=0.0, count=1, correct=0, gradient_norm=float(np.linalg.norm(gradient)))

    def retire(self, job: int) -> None:
        assert job in self.order, "only what was applied is let go"

    def chunk_gradient(self, job: int, chunk: int, weights: FloatArray) -> FloatArray:
        noise = np.random.default_rng((self._seed, job)).normal(size=(len(self.sizes), self.size))
        noise -= noise.mean(axis=0)
        gradient: FloatArray = self.sizes[chunk] * (self._curvature[job] * weights - self._target[job]) + noise[chunk]
        return gradient

    def compute(self, call: Invocation) -> Mapping[int, FloatArray]:
        """What a worker answers: for each slot the coded sum at the published snapshot."""
        return {
            slot: sum(
                (
                    c * self.chunk_gradient(task.job, chunk, self.snapshots[task.job])
                    for chunk, c in zip(task.chunks, task.coefficients, strict=True)
                ),
                np.zeros(self.size),
            )
            for slot, task in enumerate(call.slots)
            if task is not None
        }

    def plain(self) -> list[FloatArray]:
        """The weights that ordinary gradient descent reaches from the same start."""
        other = QuadraticTrainer(self.plan, self.sizes, self.size, self._seed)
        for job in range(self.plan.jobs):
            w = other.weights[self.plan.model(job)]
            gradient = sum((self.chunk_gradient(job, j, w) for j in range(len(self.sizes))), np.zeros(self.size))
            other.weights[self.plan.model(job)] = w - self.rate * gradient
        return other.weights
