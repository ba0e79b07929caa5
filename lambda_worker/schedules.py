"""A scheduler of the learning rate by its recipe: torch's by name, one of ours, the user's own, or several in turn.

    StepLR, ...                  the arguments of torch's class
    LambdaLR, MultiplicativeLR   lr_lambda is a function, or a list of them
    SequentialLR, ChainedScheduler   schedulers is a list of such tables: {"name": "LinearLR", "total_iters": 5}
    WarmupCosine                 up in `warmup_steps` steps, then down half a cosine to `floor` at `total_steps`

Knows no model. Read `step.py` next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from gradmux.lambda_worker.optimizers import label, told
from gradmux.lambda_worker.recipe import Maker, RecipeError

__all__ = [
    "WARMUP_COSINE",
    "WarmupCosine",
    "has_functions",
    "is_users",
    "make_scheduler",
    "step_scheduler",
    "with_functions",
]

WARMUP_COSINE = "WarmupCosine"
PARTS = "schedulers"
FUNCTIONS = ("lr_lambda", "scale_fn", "anneal_fn")
"""arguments that are functions"""


@dataclass(frozen=True)
class WarmupCosine:
    """The factor of the learning rate at each step, from 0 on.

    step < warmup:   (step + 1) / warmup
    else:            floor + (1 - floor) (1 + cos(pi min(1, (step - warmup) / (total - warmup)))) / 2
    """

    warmup_steps: int
    total_steps: int
    floor: float = 0.0
    """of the learning rate that the optimizer was given"""

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_steps < self.total_steps:
            raise ValueError(f"needs 0 <= warmup_steps < total_steps, got {self.warmup_steps} and {self.total_steps}")
        if not 0.0 <= self.floor <= 1.0:
            raise ValueError(f"floor = {self.floor:g} must be between 0 and 1")

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        share = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        return self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * share)) / 2.0


def make_scheduler(maker: Maker, args: Mapping[str, Any], optimizer: Optimizer) -> LRScheduler:
    """The scheduler of this optimizer. Raises RecipeError in one line."""
    kind, name = _kind(maker), label(maker)
    try:
        given = _with_parts(args, optimizer)
        # ChainedScheduler takes its parts first
        made = kind(optimizer=optimizer, **given) if isinstance(maker, str) else kind(optimizer, **given)
    except RecipeError:
        raise
    except Exception as error:  # the user's own, and torch's own, raise all kinds
        raise RecipeError(f"scheduler {name}: {told(error)}") from error
    if not isinstance(made, LRScheduler):
        raise RecipeError(f"scheduler {name} is {type(made).__name__}, expected a torch.optim.lr_scheduler.LRScheduler")
    return made


def step_scheduler(scheduler: LRScheduler | None, loss: float) -> None:
    """After a step of the optimizer, whose loss it was; nothing without a scheduler."""
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(loss)
    elif scheduler is not None:
        scheduler.step()


def has_functions(args: Mapping[str, Any]) -> bool:
    """Are there functions of the user's among the arguments, or among those of parts: by name, or themselves?"""
    for key, value in args.items():
        if key in FUNCTIONS:
            return True
        if key == PARTS and isinstance(value, list | tuple):
            parts = [part for part in value if isinstance(part, Mapping)]
            if any(is_users(part.get("name", "")) or has_functions(part) for part in parts):
                return True
    return False


def is_users(maker: Maker) -> bool:
    """Is it the user's own, and not a name of torch's or ours?"""
    return not isinstance(maker, str) or ":" in maker


def with_functions(args: Mapping[str, Any], find: Callable[[str], Any]) -> dict[str, Any]:
    """The arguments with functions in place of their names; `find` gives that of "module:function"."""

    def found(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [found(each) for each in value]
        return find(value) if isinstance(value, str) and ":" in value else value

    changed = dict(args)
    for key, value in args.items():
        if key in FUNCTIONS:
            changed[key] = found(value)
        elif key == PARTS and isinstance(value, list | tuple):
            changed[key] = [_part_with_functions(part, find) for part in value]
    return changed


def _part_with_functions(part: Any, find: Callable[[str], Any]) -> Any:
    if not isinstance(part, Mapping):
        return part
    name = part.get("name", "")
    return {**with_functions(part, find), "name": find(name) if ":" in str(name) else name}


def _kind(maker: Maker) -> Callable[..., Any]:
    if not isinstance(maker, str):
        return maker
    if maker == WARMUP_COSINE:
        return _warmup_cosine
    kind = getattr(torch.optim.lr_scheduler, maker, None)
    if not (isinstance(kind, type) and issubclass(kind, LRScheduler)) or kind is LRScheduler:
        raise RecipeError(
            f"torch.optim.lr_scheduler has no scheduler {maker!r}; {WARMUP_COSINE} is another, and your own is named "
            "module:function"
        )
    return kind


def _warmup_cosine(optimizer: Optimizer, **args: Any) -> LRScheduler:
    return LambdaLR(optimizer, WarmupCosine(**args))


def _with_parts(args: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """The arguments, with schedulers in place of the tables that describe them."""
    parts = args.get(PARTS)
    if not isinstance(parts, list | tuple):
        return dict(args)
    return {**args, PARTS: [_part(part, index, optimizer) for index, part in enumerate(parts)]}


def _part(part: Any, index: int, optimizer: Optimizer) -> Any:
    if not isinstance(part, Mapping):
        return part
    if "name" not in part:
        raise RecipeError(f"scheduler: {PARTS}.{index} has no name")
    return make_scheduler(part["name"], {key: value for key, value in part.items() if key != "name"}, optimizer)
