"""An optimizer of a model by its recipe: torch's by name, or the user's own class or function; parameters in groups.

What can be wrong is told here, in one line, before anything runs. Knows no gradients. Read `schedules.py` next.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradmux.lambda_worker.recipe import Group, Maker, Recipe, RecipeError

__all__ = ["label", "make_optimizer", "told"]

NEEDS_CLOSURE = ("LBFGS",)
"""Optimizers that evaluate the loss themselves, which only workers can."""
OF_MODEL = ("model", "module")
"""The first argument of a user's own function, when it wants the whole model."""


def make_optimizer(recipe: Recipe, module: nn.Module) -> Optimizer:
    """The optimizer of all parameters that are trained. Raises RecipeError in one line."""
    maker, name = _maker(recipe.optimizer), label(recipe.optimizer)
    given: Any = module if _takes_model(maker) else _in_groups(recipe.groups, module)
    if _takes_model(maker) and recipe.groups:
        raise RecipeError(f"optimizer {name} takes the model, so it makes the groups itself: leave out groups")
    try:
        optimizer = maker(given, **recipe.optimizer_args)
    except Exception as error:  # the user's own, and torch's own, raise all kinds
        raise RecipeError(f"optimizer {name}: {told(error)}") from error
    if not isinstance(optimizer, Optimizer):
        raise RecipeError(f"optimizer {name} is {type(optimizer).__name__}, expected a torch.optim.Optimizer")
    _require_no_closure(optimizer, name)
    _require_known_options(optimizer, recipe.groups, name)
    _require_all_stepped(optimizer, module, name)
    return optimizer


def label(maker: Maker) -> str:
    """How messages and checkpoints call it: the same for a name, the function, and what was kept of that."""
    if isinstance(maker, str):
        return maker.rpartition(":")[2]
    if isinstance(maker, functools.partial):
        return label(maker.args[0] if maker.args else maker.func)
    return str(getattr(maker, "__qualname__", type(maker).__name__))


def told(error: BaseException) -> str:
    """The exception's first line; with its class where that says more."""
    line = str(error).strip().partition("\n")[0]
    speaks = isinstance(error, TypeError | ValueError | RuntimeError) and line
    return line if speaks else f"{type(error).__name__}: {line}"


def _maker(maker: Maker) -> Callable[..., Any]:
    if not isinstance(maker, str):
        return maker
    kind = getattr(torch.optim, maker, None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)) or kind is Optimizer:
        raise RecipeError(f"torch.optim has no optimizer {maker!r}; your own is named module:function")
    return kind


def _takes_model(maker: Callable[..., Any]) -> bool:
    try:
        names = list(inspect.signature(maker).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names) and names[0] in OF_MODEL


# --- groups --------------------------------------------------------------------------------------------------------


def _in_groups(groups: Sequence[Group], module: nn.Module) -> list[Any]:
    """The trained parameters: as they are, or by group, those of none first. Raises RecipeError for an idle group."""
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    if not groups:
        return list(trained.values())
    layers = _layer_classes(module)
    parts: list[list[nn.Parameter]] = [[] for _ in range(len(groups) + 1)]
    for name, parameter in trained.items():
        fits = (index for index, group in enumerate(groups, start=1) if _fits(group, name, layers[name]))
        parts[next(fits, 0)].append(parameter)
    for index, group in enumerate(groups):
        if not parts[index + 1]:
            raise RecipeError(_says_idle(group, index, list(trained), sorted(set(layers.values()))))
    made = [{"params": part, **group.args} for group, part in zip(groups, parts[1:], strict=True)]
    return [{"params": parts[0]}, *made] if parts[0] else made


def _layer_classes(module: nn.Module) -> dict[str, str]:
    """parameter name -> class of the layer that has it under this name"""
    modules = dict(module.named_modules(remove_duplicate=False))
    return {name: type(modules[name.rpartition(".")[0]]).__name__ for name, _ in module.named_parameters()}


def _fits(group: Group, name: str, layer: str) -> bool:
    by_name = any(fnmatchcase(name, pattern) for pattern in group.names)
    return by_name or any(fnmatchcase(layer, pattern) for pattern in group.layers)


def _says_idle(group: Group, index: int, names: Sequence[str], layers: Sequence[str]) -> str:
    wanted = ", ".join((*group.names, *group.layers))
    return (
        f"optimizer: groups.{index} ({wanted}) fits no trained parameter that an earlier group leaves; parameters are "
        f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}, in layers {', '.join(layers[:6])}"
    )


# --- what cannot be stepped ------------------------------------------------------------------------------------------


def _require_no_closure(optimizer: Optimizer, name: str) -> None:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    needs = closure is not None and closure.default is closure.empty
    if needs or type(optimizer).__name__ in NEEDS_CLOSURE:
        raise RecipeError(f"{name} evaluates the loss by itself, which cannot be coded; use another")


def _require_known_options(optimizer: Optimizer, groups: Sequence[Group], name: str) -> None:
    """torch takes any key in a group, and heeds those that it knows."""
    for index, group in enumerate(groups):
        for option in group.args:
            if option not in optimizer.defaults:
                close = get_close_matches(option, optimizer.defaults, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(optimizer.defaults)}"
                raise RecipeError(f"optimizer {name}: groups.{index} sets {option!r}, which is no option of it{hint}")


def _require_all_stepped(optimizer: Optimizer, module: nn.Module, name: str) -> None:
    """A user's own function may leave out parameters, which is its right, but not step others."""
    own = {id(parameter) for parameter in module.parameters()}
    stepped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not stepped or any(id(parameter) not in own for parameter in stepped):
        raise RecipeError(f"optimizer {name} steps {'no' if not stepped else 'other'} parameters than the model's")
