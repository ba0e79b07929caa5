"""A trainer that can say how far weights and gradients have moved: what lazy schemes decide by.

Wraps a `TorchTrainer` and implements `ports.Trainer` and `schemes.scheme.Distances`: it keeps the weights that each job
started from until the loop retires them. Memory: one parameter vector for each job that is still referred to, at most
the shards plus the history for every model. Knows no triggers. Read next: `orchestrator/schemes/lazy.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.jobs import Plan
from gradmux.orchestrator.ports import StepResult
from gradmux.orchestrator.schemes.scheme import Key
from gradmux.orchestrator.training.dataset import Array
from gradmux.orchestrator.training.gradients import CodedResult, Term, combine, squared_distance
from gradmux.orchestrator.training.trainer import TorchTrainer


class HoldsResults(Protocol):
    """Looks up a result by its key."""

    def __getitem__(self, key: Key) -> CodedResult: ...


class DistanceTrainer:
    """Distances are squared Euclidean norms, computed in float64; gradients are sums over samples."""

    def __init__(self, trainer: TorchTrainer, plan: Plan, held: HoldsResults) -> None:
        """`held`: the results that the loop still holds (`orchestrator/held.py`)."""
        self._trainer, self._plan, self._held = trainer, plan, held
        self._starts: dict[int, Array] = {}

    def publish(self, job: int) -> None:
        self._trainer.publish(job)

    def step(self, job: int, results: Sequence[Term]) -> StepResult:
        self._starts[job] = self._now(job)
        return self._trainer.step(job, results)

    def retire(self, job: int) -> None:
        self._starts.pop(job, None)
        self._trainer.retire(job)

    def weights(self, job: int, other: int) -> float:
        """Between the weights that two jobs of one model start from; each applied and not retired, or its next."""
        assert self._plan.model(job) == self._plan.model(other), f"jobs {job} and {other} are of different models"
        difference: NDArray[np.float64] = self._start(job).astype(np.float64) - self._start(other)
        return float(difference @ difference)

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        """Between two weighted sums of results that are all kept."""
        return squared_distance(self._sum(one), self._sum(other))

    def _sum(self, weights: Mapping[Key, float]) -> CodedResult:
        return combine([(self._held[key], weight) for key, weight in weights.items()])

    def _start(self, job: int) -> Array:
        kept = self._starts.get(job)
        return self._now(job) if kept is None else kept

    def _now(self, job: int) -> Array:
        """(p,) the weights that the next job of its model starts from."""
        model = self._plan.model(job)
        assert self._plan.step(job) == self._trainer.steps(model), f"the weights of job {job} are not held"
        return self._trainer.parameters(model)
