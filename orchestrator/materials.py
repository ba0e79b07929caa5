"""What a job file cannot hold: functions and arrays of a Python program. Read next: `api.py`, `runs/prepare.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn

Factory: TypeAlias = "Callable[..., nn.Module]"


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
    metrics: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """by name"""
    transform: Callable[..., Any] | None = None
    """of the inputs of a row"""
    train: Any = None
    """what `training.data.load_dataset` takes; None: what the job file names"""
    eval: Any = None
