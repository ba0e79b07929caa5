"""The options that say when rounds close, made from the fields of `orchestrator/closing.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import click

from gradmux.cli.numbers import FiniteFloat
from gradmux.orchestrator.closing import Closing, ClosingKey, keys

MU = 1.0
"""of `--wait mu` where --mu is not given, as the papers have it"""

Made = TypeVar("Made")


def closing_options(kind: type[Closing] = Closing) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Adds an option for every field of `kind`; the command gets them as one argument, `closing`."""
    found = keys(kind)

    def decorate(function: Callable[..., Made]) -> Callable[..., Made]:
        @wraps(function)
        def command(*args: Any, **values: Any) -> Made:
            given = {name: values.pop(name) for name in found}
            if given["wait"] == "mu" and given["mu"] is None:
                given["mu"] = MU
            return function(*args, closing=kind(**given), **values)

        made: Callable[..., Made] = command
        for name in reversed(list(found)):
            made = _option(name, found[name])(made)
        return made

    return decorate


def _option(name: str, key: ClosingKey) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    dashed, meaning = name.replace("_", "-"), f"{key.meaning[0].upper()}{key.meaning[1:]}."
    flags = f"--{dashed}/--no-{dashed}" if key.kind is bool else f"--{dashed}"
    shown = f"{MU} with --wait mu" if name == "mu" else True
    return click.option(flags, default=key.default, show_default=shown, type=_type(key), help=meaning)


def _type(key: ClosingKey) -> click.ParamType[Any]:
    """Choices of a Literal, or a number within its bounds."""
    kinds = get_args(key.kind) if get_origin(key.kind) in (Union, UnionType) else (key.kind,)
    (kind,) = (each for each in kinds if each is not type(None))
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is float:
        return FiniteFloat(key.least, key.most)
    least, most = (None if bound is None else int(bound) for bound in (key.least, key.most))
    return click.BOOL if kind is bool else click.IntRange(least, most)
