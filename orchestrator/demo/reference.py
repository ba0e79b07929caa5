"""The same models on the same batches in one ordinary process: what every scheme's weights must equal.

Knows no scheme. Read next: `orchestrator/training/reference.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.training.reference import train_reference


@dataclass(frozen=True, slots=True)
class Reference:
    """Models that were trained without workers."""

    modules: Mapping[str, nn.Module]

    @classmethod
    def of(cls, prepared: Prepared) -> Self:
        """Trains every model of the job here and now."""
        plans, seed = prepared.models, prepared.config.training.seed
        return cls({plan.name: _trained(prepared, index, seed) for index, plan in enumerate(plans)})

    def difference(self, others: Mapping[str, nn.Module]) -> float:
        """Largest over the models of |weights - ours| / |ours| (Euclidean norms)."""
        return max(_difference(ours, others[name]) for name, ours in self.modules.items())


def _trained(prepared: Prepared, index: int, seed: int) -> nn.Module:
    plan, steps = prepared.models[index], prepared.plan.steps
    module, _ = train_reference(plan, prepared.train, prepared.order, steps, index=index, seed=seed)
    return module


@torch.no_grad()
def _difference(ours: nn.Module, other: nn.Module) -> float:
    expected = _vector(ours)
    return float(torch.linalg.vector_norm(_vector(other) - expected) / torch.linalg.vector_norm(expected))


def _vector(module: nn.Module) -> Tensor:
    """Parameters and float buffers, in float64."""
    tensors = [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]
    return torch.cat([tensor.double().flatten() for tensor in tensors])
