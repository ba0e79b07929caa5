"""What rows become on their way into a model and a loss: one tensor, a tuple of them or a dict of them.

The names of a data set's arrays say which, and nothing else does:

    x                     one input           forward(x)
    x.0, x.1, ...         a tuple             forward(a, b, ...)
    x.ids, x.mask, ...    a dict              forward(ids=..., mask=...)
    y, y.0, y.box, ...    targets, alike      loss(output, y), loss(output, a, b, ...), loss(output, box=...)
    w                     a weight for each row     multiplies the row's loss, and its part in the count
    p                     a number for each row     the row is drawn in proportion to it

Without a target the first input is it. Knows nothing of stores, shards or models. Read `data.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "INPUT",
    "ROLES",
    "SAMPLING",
    "TARGET",
    "WEIGHT",
    "Values",
    "Weighted",
    "as_tensor",
    "bare",
    "first",
    "fitted",
    "forward",
    "gathered",
    "joined",
    "leaves",
    "loss_of",
    "mapped",
    "named",
    "role_of",
    "row_count",
    "rows_of",
]

INPUT, TARGET, WEIGHT, SAMPLING = ROLES = "x", "y", "w", "p"
"""Roles: what stands before the first dot of an array's name."""

T = TypeVar("T")
Values: TypeAlias = "Tensor | tuple[Tensor, ...] | dict[str, Tensor] | Weighted"
"""Rows of inputs, or of targets; each tensor is (rows, ...)."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """Targets whose rows have weights. What takes targets passes them on as they are; losses take them apart."""

    target: Tensor | tuple[Tensor, ...] | dict[str, Tensor]
    weights: Tensor
    """(rows,)"""


def role_of(name: str) -> str:
    """INPUT, TARGET or WEIGHT."""
    return name.partition(".")[0]


def gathered(arrays: Mapping[str, T], role: str) -> T | tuple[T, ...] | dict[str, T] | None:
    """The arrays of one role, as their names say; None when there is none."""
    labelled = {name.partition(".")[2]: array for name, array in arrays.items() if role_of(name) == role}
    if not labelled:
        return None
    if "" in labelled:
        return labelled[""]
    places = [str(place) for place in range(len(labelled))]
    if set(labelled) == set(places):
        return tuple(labelled[place] for place in places)
    return labelled


def named(values: T | Sequence[T] | Mapping[str, T], role: str) -> dict[str, T]:
    """The inverse of `gathered`: tuples, lists and mappings are structures, all else is one array."""
    if isinstance(values, Mapping):
        return {f"{role}.{label}": array for label, array in values.items()}
    if isinstance(values, tuple | list):
        return {f"{role}.{place}": array for place, array in enumerate(values)}
    return {role: values}  # type: ignore[dict-item]


def leaves(values: Any) -> list[Any]:
    """The arrays of a structure, in order; weights are the last."""
    if isinstance(values, Weighted):
        return [*leaves(values.target), values.weights]
    if isinstance(values, dict):
        return list(values.values())
    return list(values) if isinstance(values, tuple) else [values]


def first(values: Values) -> Tensor:
    """The first tensor of a structure."""
    found: Tensor = leaves(values)[0]
    return found


def mapped(change: Callable[[Any], Any], values: Any) -> Any:
    """The same structure of other arrays."""
    if isinstance(values, Weighted):
        return Weighted(mapped(change, values.target), change(values.weights))
    if isinstance(values, dict):
        return {label: change(array) for label, array in values.items()}
    return tuple(change(array) for array in values) if isinstance(values, tuple) else change(values)


def joined(parts: Sequence[Values]) -> Values:
    """The rows of several alike structures, one after the other."""
    head = parts[0]
    if isinstance(head, Weighted):
        targets = [part.target for part in parts if isinstance(part, Weighted)]
        weights = [part.weights for part in parts if isinstance(part, Weighted)]
        return Weighted(joined(targets), torch.cat(weights))  # type: ignore[arg-type]
    columns = [torch.cat(each) for each in zip(*(leaves(part) for part in parts), strict=True)]
    if isinstance(head, dict):
        return dict(zip(head, columns, strict=True))
    return tuple(columns) if isinstance(head, tuple) else columns[0]


def row_count(values: Values) -> int:
    """How many rows they are."""
    return int(first(values).shape[0])


def forward(module: Callable[..., Any], inputs: Values) -> Any:
    """The module's output: a tuple goes in by position, a dict by name."""
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def loss_of(function: Callable[..., Any], output: Any, target: Values, **options: Any) -> Any:
    """The loss of an output: targets follow it, a tuple by position, a dict by name."""
    if isinstance(target, dict):
        return function(output, **target, **options)
    return function(output, *target, **options) if isinstance(target, tuple) else function(output, target, **options)


def bare(target: Values) -> Tensor | tuple[Tensor, ...] | dict[str, Tensor]:
    """Targets without their weights."""
    return target.target if isinstance(target, Weighted) else target


def rows_of(tensors: Mapping[str, Tensor]) -> tuple[Values, Values]:
    """(inputs, target) of the tensors of some rows, as their names say."""
    inputs, target = gathered(tensors, INPUT), gathered(tensors, TARGET)
    assert inputs is not None, "every data set has an input"
    if target is None:
        target = first(inputs)
    return inputs, Weighted(target, tensors[WEIGHT]) if WEIGHT in tensors else target


def as_tensor(array: NDArray[Any], role: str, dtype: torch.dtype) -> Tensor:
    """Rows as models and losses take them: floats in the model's own `dtype`, integer targets as int64, all else as it
    is.
    """
    return fitted(torch.from_numpy(np.asarray(array)), role, dtype)


def fitted(tensor: Tensor, role: str, dtype: torch.dtype) -> Tensor:
    """The same for rows that are a tensor already."""
    if tensor.is_floating_point():
        return tensor.to(dtype)
    return tensor.long() if role == TARGET and tensor.dtype is not torch.bool else tensor
