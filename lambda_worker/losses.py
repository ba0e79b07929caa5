"""A loss as a sum over samples, which is what can be coded and decoded: never a mean.

Three kinds: a name in torch.nn.functional, called with its own `reduction`; a torch loss module, whose reduction we
set; and a user's function, which must return the sum (a scalar) or one value per sample. A scalar is put to the test
once: over the same samples twice, a sum doubles and a mean does not.

Knows nothing of gradients or requests. Read `gradient.py` next.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradmux.lambda_worker.structure import Values, joined, loss_of, row_count

__all__ = ["Loss", "LossError", "loss_from"]

DOUBLING_TOLERANCE = 1e-3
"""Relative: a float32 sum over samples doubles to about 1e-6, a mean misses by half."""


class LossError(ValueError):
    """A loss that is not a sum over samples, or that cannot be called."""


class Loss:
    """A loss function, as a sum over samples; or one value for each, if it is `separable`."""

    def __init__(self, function: Callable[..., Any], name: str, separable: bool) -> None:
        """`separable`: the function takes `reduction`, as those of torch.nn.functional do."""
        self._function = function
        self._proven = separable
        self.name = name
        self.separable = separable

    def total(self, output: Any, target: Values) -> Tensor:
        """The sum over samples, a scalar."""
        if self.separable:
            return self._call(output, target, reduction="sum")
        value = self._call(output, target)
        if value.ndim > 0:
            return self._by_sample(value, target).sum()
        if not self._proven:
            self._prove_sum(output, target, value)
        return value

    def per_sample(self, output: Any, target: Values) -> Tensor:
        """One value per sample, (samples,). Only when `separable`."""
        return self._by_sample(self._call(output, target, reduction="none"), target)

    def _call(self, output: Any, target: Values, **options: str) -> Tensor:
        value = loss_of(self._function, output, target, **options)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise LossError(f"loss {self.name!r} returned {type(value).__name__}, expected a tensor of floats")
        return value

    def _by_sample(self, values: Tensor, target: Values) -> Tensor:
        samples = row_count(target)
        if values.ndim == 0 or values.shape[0] % samples:
            raise LossError(f"loss {self.name!r} gave shape {tuple(values.shape)} for {samples} samples")
        return values.reshape(samples, -1).sum(1)

    @torch.no_grad()
    def _prove_sum(self, output: Any, target: Values, once: Tensor) -> None:
        """Raises LossError unless the loss doubles when every sample comes twice. A loss of zero proves nothing yet."""
        with torch.random.fork_rng(devices=[]):  # the test must not move the random numbers of the gradient
            twice = float(self._call(_doubled(output), joined((target, target))))
        single = float(once)
        if abs(twice - 2.0 * single) > DOUBLING_TOLERANCE * abs(single):
            kind = "a mean" if abs(twice - single) <= DOUBLING_TOLERANCE * abs(single) else "no sum"
            raise LossError(
                f"loss {self.name!r} returns {kind} over the samples; return their sum, or one value per sample"
            )
        self._proven = single != 0.0


def loss_from(source: Any, name: str) -> Loss:
    """The Loss of a torch.nn.functional name, a torch loss module or a function of (output, target)."""
    if isinstance(source, str):
        function = getattr(nn.functional, source, None)
        if function is None or "reduction" not in inspect.signature(function).parameters:
            raise LossError(f"torch.nn.functional has no loss {source!r}; name one of its losses, or module:function")
        return Loss(function, name, separable=True)
    if isinstance(source, nn.Module) and hasattr(source, "reduction"):
        source = copy.copy(source)
        source.reduction = "none"
    elif not callable(source):
        raise LossError(f"loss {name!r} is {type(source).__name__}, expected a function of (output, target)")
    return Loss(source, name, separable=False)


def _doubled(output: Any) -> Any:
    """The output as it would be for every sample twice. Tensors, in tuples or lists or dicts."""
    if isinstance(output, Tensor):
        return torch.cat((output, output)) if output.ndim else output
    if isinstance(output, tuple | list):
        return type(output)(_doubled(part) for part in output)
    if isinstance(output, dict):
        return {name: _doubled(part) for name, part in output.items()}
    return output
