"""What happens to rows between their shards and a model: a function of one row, then scale, mean and std.

    transform(inputs) -> inputs, or transform(inputs, target) -> both     one row, a structure of tensors
    (x / scale - mean) / std                                              inputs of uint8; without any, of floats

A transform may draw random numbers, by torch, numpy or random: all three are seeded by (seed, epoch, row), so every
copy of a row is the same, whatever worker makes it, and another in the next epoch. Knows no shards. Read `data.py`.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradmux.lambda_worker.codec import ContractError, from_base64, to_base64
from gradmux.lambda_worker.randomness import torch_random
from gradmux.lambda_worker.structure import INPUT, TARGET, Values, fitted, gathered, mapped, named, role_of, rows_of

__all__ = ["PLAIN", "Preparation", "TransformError", "preparation_of"]

Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[..., Any]

BOTH = 2
"""arguments of a transform of inputs and target"""


class TransformError(ValueError):
    """A transform that raised, or gave rows that do not fit together. The text names the row."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done to the rows of a data set."""

    scale: float = 1.0
    mean: tuple[float, ...] = ()
    """one number, or one for each channel: the first side of a row"""
    std: tuple[float, ...] = ()
    code: str | bytes | None = None
    """the transform: module:function, or its cloudpickle"""
    seed: int = 0
    """of its random numbers"""

    def described(self) -> dict[str, Any]:
        """As JSON; empty when nothing is done."""
        if self == PLAIN:
            return {}
        code = self.code if not isinstance(self.code, bytes) else {"cloudpickle": to_base64(self.code)}
        return {"scale": self.scale, "mean": list(self.mean), "std": list(self.std), "code": code, "seed": self.seed}

    def rows(
        self, arrays: Mapping[str, Array], ids: Array, epoch: int, function: Function | None, dtype: torch.dtype
    ) -> tuple[Values, Values]:
        """(inputs, target) as models take them, out of what the shards hold. `function`: what `code` stands for.

        Raises: TransformError.
        """
        tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
        if function is not None:
            tensors = self._transformed(tensors, ids, epoch, function)
        tensors = self._all_scaled(tensors, dtype)
        return rows_of({name: fitted(each, role_of(name), dtype) for name, each in tensors.items()})

    def _transformed(
        self, tensors: Mapping[str, Tensor], ids: Array, epoch: int, function: Function
    ) -> dict[str, Tensor]:
        rows = []
        with torch_random():
            for place, row in enumerate(ids.tolist()):
                _seed(self.seed, epoch, row)
                rows.append(_called(function, {name: each[place] for name, each in tensors.items()}, row))
        try:
            return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        except (RuntimeError, KeyError, TypeError) as error:
            raise TransformError(f"transform: its rows do not fit together: {error}") from error

    def _all_scaled(self, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        """Scale, mean and std of the inputs that they are for."""
        if self.scale == 1.0 and not self.mean and not self.std:
            return dict(tensors)
        inputs = {name: each for name, each in tensors.items() if role_of(name) == INPUT}
        bytes_ = [name for name, each in inputs.items() if each.dtype is torch.uint8]
        chosen = bytes_ or [name for name, each in inputs.items() if each.is_floating_point()]
        return {name: self._scaled(each, dtype) if name in chosen else each for name, each in tensors.items()}

    def _scaled(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        found = values.to(dtype, copy=True).div_(self.scale)
        if self.mean:
            found.sub_(_by_channel(self.mean, found))
        return found.div_(_by_channel(self.std, found)) if self.std else found


PLAIN = Preparation()


def preparation_of(described: Mapping[str, Any]) -> Preparation:
    """The inverse of `Preparation.described`. Raises ContractError."""
    if not described:
        return PLAIN
    try:
        code = described["code"]
        if isinstance(code, Mapping):
            code = bytes(from_base64(code["cloudpickle"], "manifest.extra.prepare.code"))
        numbers = {name: tuple(map(float, described[name])) for name in ("mean", "std")}
        return Preparation(float(described["scale"]), numbers["mean"], numbers["std"], code, int(described["seed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"manifest.extra.prepare: {type(error).__name__}: {error}") from error


def _by_channel(numbers: tuple[float, ...], values: Tensor) -> Tensor:
    found = torch.tensor(numbers, dtype=values.dtype)
    if len(numbers) == 1:
        return found
    if values.ndim < BOTH or values.shape[1] != len(numbers):
        raise TransformError(f"mean and std have {len(numbers)} numbers, but a row is {tuple(values.shape[1:])}")
    return found.reshape(-1, *(1,) * (values.ndim - BOTH))


def _seed(*seeds: int) -> None:
    state = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    torch.default_generator.manual_seed(state)
    np.random.seed(state)
    random.seed(state)


def _called(function: Function, values: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
    """One row after the transform; it may change what it gets."""
    copies = {name: each.clone() for name, each in values.items()}
    inputs, target = gathered(copies, INPUT), gathered(copies, TARGET)
    others = {name: each for name, each in values.items() if role_of(name) not in (INPUT, TARGET)}
    try:
        if _takes_both(function):
            inputs, target = function(inputs, target)
        else:
            inputs = function(inputs)
    except Exception as error:  # the user's own code
        raise TransformError(f"transform, row {row}: {type(error).__name__}: {error}") from error
    found = {**named(mapped(torch.as_tensor, inputs), INPUT), **others}
    return found if target is None else {**found, **named(mapped(torch.as_tensor, target), TARGET)}


def _takes_both(function: Function) -> bool:
    """Whether it has two arguments that must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is each.empty for each in parameters) == BOTH
