"""What a model returns, as one thing: tensors, in tuples, namedtuples, lists, mappings and dataclasses of any depth.

A loss gets the model's output whole, of its own type (as Hugging Face's ModelOutput); here is only what our own tests
of a loss need: the same output with other tensors in it. Knows nothing of losses. Read `losses.py` next.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["changed", "doubled", "part_of", "scores"]


def changed(output: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The output, of its own type, with `function` applied to every tensor in it. What is nothing of all that stays."""
    if isinstance(output, Tensor):
        return function(output)
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*(changed(part, function) for part in output))
    if isinstance(output, tuple | list):
        return type(output)(changed(part, function) for part in output)
    if isinstance(output, Mapping):
        return _mapped_mapping(output, function)
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return _mapped_fields(output, function)
    return output


def _mapped_mapping(output: Mapping[Any, Any], function: Callable[[Tensor], Tensor]) -> Any:
    """A copy of it with other values: its class may do more than a dict does."""
    values = {key: changed(value, function) for key, value in output.items()}
    if not isinstance(output, MutableMapping):
        return values
    other = copy.copy(output)
    for key, value in values.items():
        other[key] = value
    return other


def _mapped_fields(output: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a dataclass, frozen ones too."""
    other = copy.copy(output)
    for field in dataclasses.fields(output):
        if hasattr(output, field.name):
            object.__setattr__(other, field.name, changed(getattr(output, field.name), function))
    return other


def doubled(output: Any, rows: int) -> Any:
    """The output as it would be for every row twice: tensors that have a value for each of the `rows`."""

    def twice(part: Tensor) -> Tensor:
        return torch.cat((part, part)) if part.ndim and part.shape[0] == rows else part

    return changed(output, twice)


def part_of(output: Any, rows: int, lo: int, hi: int) -> Any:
    """The output as it would be for rows [lo, hi) of its `rows` alone, were they not to mix."""

    def taken(part: Tensor) -> Tensor:
        return part[lo:hi] if part.ndim and part.shape[0] == rows else part

    return changed(output, taken)


def scores(output: Any) -> Tensor | None:
    """The tensor that is judged as classification: the output itself, or its `logits`; None when there is neither."""
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return found if isinstance(found, Tensor) else None
