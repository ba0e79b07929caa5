"""How a model is stepped, as data: optimizer, parameter groups, scheduler, clipping, average of the weights.

Names lead into torch.optim and torch.optim.lr_scheduler; anything else is a class or function that was found already.
Knows no model. Read `optimizers.py` and `schedules.py` for what is made of it, `step.py` for what uses that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Group", "Maker", "Recipe", "RecipeError"]

Maker: TypeAlias = str | Callable[..., Any]
"""The name of one of torch's classes, or a class or function."""


class RecipeError(ValueError):
    """A recipe by which this model cannot be stepped."""


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that the optimizer treats in their own way. A parameter is of the first group that it fits."""

    names: tuple[str, ...] = ()
    """patterns of parameter names, as of files: *.bias"""
    layers: tuple[str, ...] = ()
    """patterns of the class of the layer that a parameter is of: *Norm*"""
    args: Mapping[str, Any] = field(default_factory=dict)
    """options of the optimizer for this group"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to step one model."""

    optimizer: Maker = "SGD"
    """called with the parameters, or with the model where its first argument is called `model`"""
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    scheduler: Maker | None = None
    """called with the optimizer; stepped after every step of it"""
    scheduler_args: Mapping[str, Any] = field(default_factory=dict)
    clip_norm: float | None = None
    """largest Euclidean norm of a gradient"""
    clip_value: float | None = None
    """largest absolute value of an element of a gradient"""
    ema: float | None = None
    """decay of the exponential moving average of the weights, for each step"""
