"""A model as its user plans it -> the module, what steps it, and the spec that workers build it from.

Knows neither stores nor results. Read `trainer.py` next.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import orjson
from torch import nn

from gradmux.lambda_worker.carried import Sources
from gradmux.lambda_worker.gradient import mixed
from gradmux.lambda_worker.losses import LossError, loss_from
from gradmux.lambda_worker.metrics import metric_from
from gradmux.lambda_worker.models import Model, ModelError, ModelSpec
from gradmux.lambda_worker.norms import NormError, Rule
from gradmux.lambda_worker.randomness import torch_random
from gradmux.lambda_worker.recipe import Group, Maker, Recipe, RecipeError
from gradmux.lambda_worker.schedules import has_functions, is_users, make_scheduler, with_functions
from gradmux.lambda_worker.step import Stepper
from gradmux.lambda_worker.whole import encode_whole
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.code import Code, find_code, first_line, ship_code

FLOAT_TYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model to train."""

    name: str
    factory: Code
    """returns the nn.Module"""
    args: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments of the factory: JSON values"""
    optimizer: Code = "SGD"
    """a class of torch.optim by name, "module:function", or a class or function: `lambda_worker/recipe.py`"""
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    """parameters that the optimizer treats in their own way"""
    scheduler: Code | None = None
    """the same of torch.optim.lr_scheduler, stepped after every step of the optimizer"""
    scheduler_args: Mapping[str, Any] = field(default_factory=dict)
    clip_norm: float | None = None
    clip_value: float | None = None
    ema: float | None = None
    """decay of the moving average of the weights"""
    loss: Code = "cross_entropy"
    """a name in torch.nn.functional, "module:name", or a loss: `lambda_worker/losses.py`"""
    metrics: tuple[tuple[str, Code], ...] = ()
    """(name, what it is): `lambda_worker/metrics.py`"""
    dtype: str = "float32"
    """of parameters: float32 or float64"""
    seed: int = 0
    """the job's; with the model's name it seeds the factory, and with step and pass every forward: see `seeded`"""
    pass_rows: int | None = None
    """rows of one forward and backward at most, whichever worker computes them; None: all rows of a chunk"""
    norms: Rule = "running"
    """how batch normalisation normalises: `lambda_worker/norms.py`"""
    most_rows: int | None = None
    """of one forward and backward where passes are free: what fits into a worker's memory; None: any number"""
    buffers: tuple[str, ...] = ()
    """that a forward changes, but for batch norm's running statistics: as the trial has found"""
    carries: Sources = field(default_factory=dict)
    """modules of the user's own that its functions import while they run"""


def kind_of(plan: ModelPlan) -> tuple[Any, ...]:
    """Models of one kind compute the same."""
    return plan.factory, orjson.dumps(dict(plan.args), option=orjson.OPT_SORT_KEYS), plan.loss, plan.dtype


def seeded(plan: ModelPlan) -> ModelPlan:
    """The plan with a seed of its own, by its name: what else the job trains changes none of its random numbers."""
    return replace(plan, seed=mixed(plan.seed, plan.name))


@dataclass(slots=True)
class Trained:
    """One model under training."""

    plan: ModelPlan
    model: Model
    stepper: Stepper
    steps: int = 0
    """done"""

    @property
    def module(self) -> nn.Module:
        return self.model.module


def prepare(plan: ModelPlan) -> Trained:
    """Builds a model and its optimizer. Raises ConfigError that names the model, whatever is wrong with it."""
    where = f"model {plan.name!r}"
    if plan.dtype not in FLOAT_TYPES:
        raise ConfigError(f"{where}: dtype {plan.dtype!r}, expected {' or '.join(FLOAT_TYPES)}")
    try:
        model = Model(
            _make_module(plan, where),
            _loss(plan, where),
            plan.dtype,
            fixed=plan.pass_rows is not None,
            norms=plan.norms,
            most_rows=plan.most_rows,
            metrics={name: metric_from(_metric(code, where), name) for name, code in plan.metrics},
        )
    except (ModelError, NormError, LossError) as error:
        raise ConfigError(f"{where}: {first_line(error)}") from error
    _require_one_dtype(model, where)
    try:
        return Trained(plan, model, Stepper(model, recipe_of(plan)))
    except RecipeError as error:
        raise ConfigError(f"{where}: {first_line(error)}") from error


def recipe_of(plan: ModelPlan) -> Recipe:
    """How the model is stepped, with the user's own functions found. Raises ConfigError."""
    where = f"model {plan.name!r}"

    def find(code: Code) -> Maker:
        return find_code(code, f"{where}: scheduler") if is_users(code) else code

    return Recipe(
        optimizer=find_code(plan.optimizer, f"{where}: optimizer") if is_users(plan.optimizer) else plan.optimizer,
        optimizer_args=plan.optimizer_args,
        groups=plan.groups,
        scheduler=None if plan.scheduler is None else find(plan.scheduler),
        scheduler_args=with_functions(plan.scheduler_args, find),
        clip_norm=plan.clip_norm,
        clip_value=plan.clip_value,
        ema=plan.ema,
    )


def own_code(plan: ModelPlan) -> dict[str, Code]:
    """The user's own "optimizer" and "scheduler", where they are not torch's.

    The scheduler is complete with its arguments, as functions may be among them.
    """
    found: dict[str, Code] = {"optimizer": plan.optimizer} if is_users(plan.optimizer) else {}
    if plan.scheduler is not None and (is_users(plan.scheduler) or has_functions(plan.scheduler_args)):
        recipe = recipe_of(plan)
        assert recipe.scheduler is not None
        whole = isinstance(plan.scheduler, partial) and not plan.scheduler_args
        made = partial(make_scheduler, recipe.scheduler, recipe.scheduler_args)
        found["scheduler"] = plan.scheduler if whole else made
    return found


def make_spec(plan: ModelPlan) -> ModelSpec:
    """What a worker builds the same model from. Raises ConfigError when that cannot be sent."""
    where = f"model {plan.name!r}"
    try:
        orjson.dumps(dict(plan.args))
    except TypeError as error:
        raise ConfigError(f"{where}: args must be JSON values: {first_line(error)}") from error
    shipped_loss = plan.loss if _is_plain_name(plan.loss) else ship_code(plan.loss, f"{where}: loss", plan.carries)
    shipped = {
        name: code if _is_plain_name(code) else ship_code(code, f"{where}: metric {name}", plan.carries)
        for name, code in plan.metrics
    }
    return ModelSpec(
        factory=ship_code(plan.factory, f"{where}: factory", plan.carries),
        args=dict(plan.args),
        loss=shipped_loss,  # type: ignore[arg-type]
        dtype=plan.dtype,
        seed=plan.seed,
        fixed=plan.pass_rows is not None,
        norms=plan.norms,
        metrics=shipped,  # type: ignore[arg-type]
        most_rows=plan.most_rows,
    )


def make_stepped_spec(trained: Trained) -> ModelSpec:
    """The same for workers that make the model's steps: with all that the client steps it by. Raises ConfigError."""
    recipe = recipe_of(trained.plan)
    parts = {each.name: getattr(recipe, each.name) for each in fields(recipe)}
    shipped = ship_code(partial(Recipe, **parts), f"model {trained.plan.name!r}: optimizer and scheduler")
    assert isinstance(shipped, bytes), "what has arguments goes by value"
    return replace(make_spec(trained.plan), recipe=shipped, idle=tuple(sorted(trained.stepper.idle)))


def why_not_stepped(trained: Trained) -> str:
    """Why workers cannot make the steps of a model, in one line; empty when they can."""
    try:
        spec = make_stepped_spec(trained)
        pickle.loads(spec.recipe or b"")()  # what has just been pickled here
        encode_whole(trained.model, trained.stepper)
    except Exception as error:  # the user's own __reduce__ and state_dict, too
        return first_line(error)
    return ""


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
    code = plan.loss if _is_plain_name(plan.loss) else find_code(plan.loss, f"{where}: loss")
    return loss_from(code, plan.loss if isinstance(plan.loss, str) else getattr(plan.loss, "__name__", "loss"))


def _metric(code: Code, where: str) -> Any:
    return code if _is_plain_name(code) else find_code(code, f"{where}: metric")


def _is_plain_name(loss: Code) -> bool:
    return isinstance(loss, str) and ":" not in loss


def _require_one_dtype(model: Model, where: str) -> None:
    """Complex or integer parameters have no place in a flat vector of floats."""
    others = {str(p.dtype) for p in model.parameters if p.dtype != model.dtype}
    if others:
        raise ConfigError(
            f"{where}: has parameters of type {', '.join(sorted(others))}, expected floats alone: keep a complex one "
            "as two real numbers, and use torch.view_as_complex in the forward"
        )
