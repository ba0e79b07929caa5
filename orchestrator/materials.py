"""What a job file cannot hold: functions and arrays of a Python program. Read next: `api.py`, `runs/prepare.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn

Factory: TypeAlias = "Callable[..., nn.Module]"
Arrays: TypeAlias = tuple[Any, Any]
"""(x, y): numpy arrays or CPU tensors with the same number of rows"""


@dataclass(frozen=True, slots=True)
class Materials:
    """Functions and arrays of a job that was not written as a file."""

    factories: Mapping[str, Factory] = field(default_factory=dict)
    """model name -> factory"""
    optimizers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """model name -> the user's own class or function"""
    schedulers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """model name -> the user's own, complete with its arguments: it takes the optimizer alone"""
    loss: Callable[..., Any] | None = None
    train: Arrays | None = None
    eval: Arrays | None = None
