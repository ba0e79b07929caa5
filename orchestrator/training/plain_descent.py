"""What a lazy scheme needs of a job, checked before anything runs: full-batch gradient descent with a fixed step size.

Its trigger compares how far a shard's gradient has moved with how far the weights have; both only mean what the papers
say when a shard is the same rows in every step and a step is the learning rate times the gradient, nothing else.
Knows no scheme. Read next: `orchestrator/schemes/lazy.py`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence

import torch

from gradmux.lambda_worker.optimizers import label
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import BatchOrder

NOT_PLAIN = ("momentum", "weight_decay", "maximize")
"""Arguments of SGD that make a step more than the learning rate times the gradient."""
DEFAULT_RATE = float(inspect.signature(torch.optim.SGD).parameters["lr"].default)


def learning_rates(plans: Sequence[ModelPlan]) -> tuple[float, ...]:
    """The learning rate of each model, in order; empty unless all of them are stepped by SGD, each at one rate."""
    rates = [plan.optimizer_args.get("lr", DEFAULT_RATE) for plan in plans if plan.optimizer == "SGD"]
    known = len(rates) == len(plans) and all(isinstance(rate, int | float) for rate in rates)
    return tuple(map(float, rates)) if known else ()


def require_plain_descent(scheme: str, plans: Sequence[ModelPlan], alpha: float) -> None:
    """Every model by plain SGD, at the step size `alpha` unless that is 0. Raises: ConfigError for what is not."""
    for plan in plans:
        found = _what_is_not_plain(plan)
        if found is not None and "clip" in found:
            raise ConfigError(f"{scheme} needs plain SGD, but {found}: leave it out")
        if found is not None:
            raise ConfigError(f"{scheme} needs plain SGD, but model {plan.name!r} has {found}: use another scheme")
    for plan, rate in zip(plans, learning_rates(plans), strict=False):
        if alpha and not math.isclose(alpha, rate, rel_tol=1e-9):
            raise ConfigError(
                f"{scheme}: alpha = {alpha:g} is not the learning rate of model {plan.name!r}, {rate:g}: "
                "leave alpha out"
            )


def full_batch(scheme: str, order: BatchOrder) -> BatchOrder:
    """The order in which a chunk is the same rows in every step. Raises: ConfigError when a batch is not all rows."""
    if order.batch_size != order.rows:
        raise ConfigError(
            f"{scheme} needs the whole data in every step, but batch_size = {order.batch_size}: "
            f"set data.batch_size = {order.rows}"
        )
    return BatchOrder(order.rows, order.batch_size, order.seed, shuffle=False)


def _what_is_not_plain(plan: ModelPlan) -> str | None:
    if plan.optimizer != "SGD":
        return f"optimizer {label(plan.optimizer)}"
    if plan.groups:
        return "groups of parameters"
    if plan.scheduler is not None:
        return f"scheduler {label(plan.scheduler)}"
    for name, bound in (("clip_norm", plan.clip_norm), ("clip_value", plan.clip_value)):
        if bound is not None:
            return f"{name} = {bound:g}"
    set_to = {name: plan.optimizer_args.get(name) for name in NOT_PLAIN}
    return next((f"{name} = {value}" for name, value in set_to.items() if value), None)
