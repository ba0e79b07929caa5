"""A model as its user plans it -> the module, its optimizer, and the spec that workers build it from.

Knows neither stores nor results. Read `trainer.py` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradmux.lambda_worker.losses import LossError, loss_from
from gradmux.lambda_worker.models import Model, ModelError, ModelSpec
from gradmux.lambda_worker.norms import NormError
from gradmux.lambda_worker.randomness import torch_random
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.code import Code, find_code, first_line, ship_code

NEEDS_CLOSURE = ("LBFGS",)
"""Optimizers that evaluate the loss themselves, which only workers can."""
FLOAT_TYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model to train."""

    name: str
    factory: Code
    """returns the nn.Module"""
    args: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments of the factory: JSON values"""
    optimizer: str = "SGD"
    """a class of torch.optim"""
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str | None = None
    """a class of torch.optim.lr_scheduler, stepped after every step of the optimizer"""
    scheduler_args: Mapping[str, Any] = field(default_factory=dict)
    loss: Code = "cross_entropy"
    """a name in torch.nn.functional, "module:name", or a loss: `lambda_worker/losses.py`"""
    dtype: str = "float32"
    """of parameters: float32 or float64"""
    seed: int = 0
    """of torch while the factory runs: of the initial weights"""


def seeded(plan: ModelPlan, index: int) -> ModelPlan:
    """The plan as the `index`-th of its job."""
    return replace(plan, seed=plan.seed + index)


@dataclass(slots=True)
class Trained:
    """One model under training."""

    plan: ModelPlan
    model: Model
    optimizer: Optimizer
    scheduler: LRScheduler | None
    steps: int = 0
    """done"""
    idle: frozenset[int] = frozenset()
    """parameters, by index, that had no part in the loss when it was tried: torch gives such no gradient, not a zero"""

    @property
    def module(self) -> nn.Module:
        return self.model.module


def prepare(plan: ModelPlan) -> Trained:
    """Builds a model and its optimizer. Raises ConfigError that names the model, whatever is wrong with it."""
    where = f"model {plan.name!r}"
    if plan.dtype not in FLOAT_TYPES:
        raise ConfigError(f"{where}: dtype {plan.dtype!r}, expected {' or '.join(FLOAT_TYPES)}")
    try:
        model = Model(_make_module(plan, where), _loss(plan, where), plan.dtype)
    except (ModelError, NormError, LossError) as error:
        raise ConfigError(f"{where}: {first_line(error)}") from error
    _require_one_dtype(model, where)
    optimizer = _make_optimizer(plan, model, where)
    return Trained(plan, model, optimizer, _make_scheduler(plan, optimizer, where))


def make_spec(plan: ModelPlan) -> ModelSpec:
    """What a worker builds the same model from. Raises ConfigError when that cannot be sent."""
    where = f"model {plan.name!r}"
    try:
        orjson.dumps(dict(plan.args))
    except TypeError as error:
        raise ConfigError(f"{where}: args must be JSON values: {first_line(error)}") from error
    shipped_loss = plan.loss if _names_torch_loss(plan.loss) else ship_code(plan.loss, f"{where}: loss")
    return ModelSpec(
        factory=ship_code(plan.factory, f"{where}: factory"),
        args=dict(plan.args),
        loss=shipped_loss,  # type: ignore[arg-type]
        dtype=plan.dtype,
        seed=plan.seed,
    )


def _make_module(plan: ModelPlan, where: str) -> nn.Module:
    factory = find_code(plan.factory, f"{where}: factory")
    try:
        with torch_random(plan.seed):
            module = factory(**plan.args)
    except (Exception, SystemExit) as error:  # the user's own code
        raise ConfigError(f"{where}: its factory raised {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{where}: its factory returned {type(module).__name__}, expected a torch.nn.Module")
    return module


def _loss(plan: ModelPlan, where: str) -> Any:
    code = plan.loss if _names_torch_loss(plan.loss) else find_code(plan.loss, f"{where}: loss")
    return loss_from(code, plan.loss if isinstance(plan.loss, str) else getattr(plan.loss, "__name__", "loss"))


def _names_torch_loss(loss: Code) -> bool:
    return isinstance(loss, str) and ":" not in loss


def _require_one_dtype(model: Model, where: str) -> None:
    """Complex or integer parameters have no place in a flat vector of floats."""
    others = {str(p.dtype) for p in model.parameters if p.dtype != model.dtype}
    if others:
        raise ConfigError(f"{where}: has parameters of type {', '.join(sorted(others))}, expected floats alone")


def _make_optimizer(plan: ModelPlan, model: Model, where: str) -> Optimizer:
    kind = getattr(torch.optim, plan.optimizer, None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)) or kind is Optimizer:
        raise ConfigError(f"{where}: torch.optim has no optimizer {plan.optimizer!r}")
    if plan.optimizer in NEEDS_CLOSURE:
        raise ConfigError(f"{where}: {plan.optimizer} evaluates the loss by itself, which cannot be coded; use another")
    trained = [parameter for parameter in model.parameters if parameter.requires_grad]
    try:
        return kind(trained, **plan.optimizer_args)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{where}: optimizer {plan.optimizer}: {first_line(error)}") from error


def _make_scheduler(plan: ModelPlan, optimizer: Optimizer, where: str) -> LRScheduler | None:
    if plan.scheduler is None:
        return None
    kind = getattr(torch.optim.lr_scheduler, plan.scheduler, None)
    if not (isinstance(kind, type) and issubclass(kind, LRScheduler)) or kind is LRScheduler:
        raise ConfigError(f"{where}: torch.optim.lr_scheduler has no scheduler {plan.scheduler!r}")
    try:
        return kind(optimizer, **plan.scheduler_args)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: scheduler {plan.scheduler}: {first_line(error)}") from error
