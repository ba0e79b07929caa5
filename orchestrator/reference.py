"""The models of a job by ordinary training in this process, without any worker: what every scheme's must equal.

Shares no code with trainer and worker: `training/reference.py` is the loop. Read next: `compare.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.training.reference import PlainModel, train_plainly

__all__ = ["Reference", "vector"]


@dataclass(frozen=True, slots=True)
class Reference(Mapping[str, nn.Module]):
    """Models that were trained without workers, by name."""

    modules: Mapping[str, nn.Module]
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """mean loss of every step"""
    averages: Mapping[str, nn.Module] = field(default_factory=dict)
    """modules with the moving average of the weights, of models with `ema`"""

    @classmethod
    def of(cls, prepared: Prepared, steps: int | None = None) -> Self:
        """Trains every model of the job here and now, for so many steps (None: all)."""
        sizes = None if prepared.auto else prepared.scheme().chunk_sizes
        losses: dict[str, tuple[float, ...]] = {}
        models: dict[str, PlainModel] = {}
        for plan in prepared.models:
            model = models[plan.name] = PlainModel(plan)
            count = prepared.plan.steps if steps is None else steps
            losses[plan.name] = tuple(train_plainly(model, plan, prepared.train, prepared.order, count, sizes))
        averages = {name: model.average.module for name, model in models.items() if model.average is not None}
        return cls({name: model.module for name, model in models.items()}, losses, averages)

    def __getitem__(self, name: str) -> nn.Module:
        return self.modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def difference(self, others: Mapping[str, nn.Module]) -> float:
        """Largest over the models of |weights - ours| / |ours| (Euclidean norms)."""
        return max(_difference(ours, others[name]) for name, ours in self.modules.items())


@torch.no_grad()
def _difference(ours: nn.Module, other: nn.Module) -> float:
    expected = vector(ours)
    return float(torch.linalg.vector_norm(vector(other) - expected) / torch.linalg.vector_norm(expected))


def vector(module: nn.Module) -> Tensor:
    """Parameters and float buffers, in float64."""
    tensors = [each.detach() for each in module.state_dict().values() if each.is_floating_point()]
    return torch.cat([each.double().flatten() for each in tensors])
