"""A loss as a sum and a count over rows, which can be coded and decoded; a step divides the one by the other.

    torch's own, by name or as a module   its values with reduction="none", and the count that torch's mean divides by
    a function                            one value a row (the count is the rows), or (sum, count), or a scalar that is
                                          shown to be a sum: that of parts adds up, and over the rows twice it doubles

Sums and counts of passes add up to those of the batch, whichever worker computes them; means do not. A pass of count 0
is ordinary. Knows nothing of gradients or requests. Read `divisors.py` for what torch divides by, `gradient.py` next.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradmux.lambda_worker.divisors import Rule, rule_of_function, rule_of_module
from gradmux.lambda_worker.outputs import doubled, part_of
from gradmux.lambda_worker.randomness import torch_random
from gradmux.lambda_worker.structure import Values, Weighted, bare, joined, leaves, loss_of, mapped, row_count

__all__ = ["Loss", "LossError", "Summed", "loss_from", "takes_reduction"]

TOLERANCE = 1e-3
"""Relative: float32 sums agree to about 1e-6, a mean taken for a sum misses by half."""
ADVICE = "return one value a row, or (sum, count)"
MEANS = ("mean", "batchmean")
PAIR = 2
"""sum and count"""


class LossError(ValueError):
    """A loss that is no sum and count over rows, or that cannot be called."""


@dataclass(frozen=True, slots=True)
class Summed:
    """What a loss says of some rows."""

    total: Tensor
    """scalar, with its graph"""
    count: float
    """what the batch's total is divided by, summed over the batch as well"""


@dataclass(frozen=True, slots=True)
class ByRow:
    """The same for each row by itself."""

    values: Tensor
    """(rows,), with its graph"""
    counts: Tensor
    """(rows,) float64"""


class Loss:
    """A loss of (output, target). `name` is how messages call it."""

    name: str
    separable = False
    """Is it torch's own, whose rows do not mix, so that `by_row` may answer?"""
    counts_by_target = True
    """Does the count depend on targets alone? Then it is the same at every step on the same rows."""

    def summed(self, output: Any, target: Values) -> Summed:
        """Sum and count over these rows. Raises LossError."""
        raise NotImplementedError

    def by_row(self, output: Any, target: Values) -> ByRow | None:
        """Of each row, when it is `separable` and has values for each; else None."""
        return None

    def each(self, output: Any, target: Values) -> ByRow | None:
        """The same of any loss that has one value for each row, whatever else it is."""
        return self.by_row(output, target)

    def check(self, output: Any, target: Values) -> None:
        """Holds sum and count of these rows to what the loss itself calls their mean. Raises LossError."""

    def to(self, dtype: torch.dtype) -> Loss:
        """The same for outputs of this type: class weights and other tensors of a module are converted."""
        return self


class ReducedLoss(Loss):
    """One that takes `reduction`, as torch's do: a function's argument, or an attribute of a module."""

    def __init__(self, call: Callable[..., Any], reduction: str, rule: Rule, name: str) -> None:
        """`call` takes (output, target, reduction=...); `reduction` is what the user chose: mean or batchmean."""
        self._call_it, self._reduction, self._divisor = call, reduction, rule.divisor
        self.name, self.separable = name, rule.torchs_own
        self._scalar = ScalarSum(name)

    def summed(self, output: Any, target: Values) -> Summed:
        values = self._values(output, target, "none")
        if values.ndim == 0:  # it heeds no reduction: a scalar like any other
            return self._scalar.summed(values, lambda o, t: self._values(o, t, "none"), output, target)
        count = float(self._divisor(values, target).sum())
        if not self.separable:  # whatever it may ignore, or weigh, comes with some rows and not with others
            self._hold_to_mean(values.detach(), count, output, target)
        return Summed(values.sum(), count)

    def by_row(self, output: Any, target: Values) -> ByRow | None:
        values, rows = self._values(output, target, "none"), row_count(target)
        if not self.separable or values.ndim == 0 or values.shape[0] != rows:
            return None
        return ByRow(values.reshape(rows, -1).sum(1), self._divisor(values, target))

    def each(self, output: Any, target: Values) -> ByRow | None:
        values, rows = self._values(output, target, "none"), row_count(target)
        if values.ndim == 0 or values.shape[0] != rows:
            return None
        counts = self._divisor(values, target)
        return ByRow(values.reshape(rows, -1).sum(1), counts) if counts.shape == (rows,) else None

    @torch.no_grad()
    def check(self, output: Any, target: Values) -> None:
        _require_targets(getattr(self._call_it, "signed", self._call_it), target, self.name)
        with torch_random(0):
            values = self._values(output, target, "none")
        if values.ndim:
            self._refuse_spread(values, output, target)
            self._hold_to_mean(values, float(self._divisor(values, target).sum()), output, target)

    @torch.no_grad()
    def _hold_to_mean(self, values: Tensor, count: float, output: Any, target: Values) -> None:
        """Raises LossError unless sum / count is what the loss itself calls the mean of these rows."""
        with torch_random(0), warnings.catch_warnings(action="ignore"):  # kl_div warns of its own default
            mean = float(self._values(output, target, self._reduction))
        total, size = float(values.sum()), float(values.abs().mean())
        if count > 0 and math.isfinite(mean) and abs(total / count - mean) > TOLERANCE * max(abs(mean), size):
            raise LossError(
                f"loss {self.name!r} with reduction={self._reduction!r} is {mean:g} over {row_count(target)} rows, but "
                f"its values add up to {total:g} with a count of {count:g}: what it divides by is not known; return "
                "(sum, count) from a function"
            )

    def _refuse_spread(self, values: Tensor, output: Any, target: Values) -> None:
        if not (isinstance(output, Tensor) and isinstance(target, Tensor)):
            return
        if values.numel() > max(output.numel(), target.numel()):
            raise LossError(
                f"loss {self.name!r} spreads outputs {tuple(output.shape)} and targets {tuple(target.shape)} out to "
                f"{tuple(values.shape)}, which mixes rows: give them one shape"
            )

    def _values(self, output: Any, target: Values, reduction: str) -> Tensor:
        return _floats(loss_of(self._call_it, output, target, reduction=reduction), self.name)

    def to(self, dtype: torch.dtype) -> Loss:
        module = getattr(self._call_it, "module", None)
        if not isinstance(module, nn.Module) or _is_of(module, dtype):
            return self
        return _reduced_module(copy.deepcopy(module).to(dtype), self.name)


class FunctionLoss(Loss):
    """A function, or a module without `reduction`: what it returns says what it is."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self.name = function, name
        self._scalar, self._proven_pair = ScalarSum(name), False

    def summed(self, output: Any, target: Values) -> Summed:
        value = loss_of(self._function, output, target)
        if isinstance(value, tuple | list) and len(value) == PAIR:
            return self._pair(value, output, target)
        value, rows = _floats(value, self.name), row_count(target)
        if value.ndim == 0:
            return self._scalar.summed(value, lambda o, t: loss_of(self._function, o, t), output, target)
        if value.shape[0] != rows or value.numel() != rows:
            raise LossError(
                f"loss {self.name!r} gave shape {tuple(value.shape)} for {rows} rows, which does not say what the sum "
                f"is divided by: {ADVICE}"
            )
        return Summed(value.sum(), float(rows))

    def each(self, output: Any, target: Values) -> ByRow | None:
        value, rows = loss_of(self._function, output, target), row_count(target)
        if not isinstance(value, Tensor) or value.shape[:1] != (rows,) or value.numel() != rows:
            return None
        return ByRow(_floats(value, self.name).reshape(rows), torch.ones(rows, dtype=torch.float64))

    def _pair(self, pair: Any, output: Any, target: Values) -> Summed:
        self.counts_by_target = False
        found = _sum_and_count(pair, self.name)
        if not self._proven_pair:
            self._prove_pair(found, output, target)
        return found

    @torch.no_grad()
    def _prove_pair(self, once: Summed, output: Any, target: Values) -> None:
        """Raises LossError when the sum stays as it is while the count doubles: then it is a mean."""
        with torch_random(0):
            pair = loss_of(self._function, doubled(output, row_count(target)), joined((target, target)))
        twice, single = _sum_and_count(pair, self.name), float(once.total.detach())
        self._proven_pair = math.isfinite(single) and single != 0.0 and once.count > 0
        if not self._proven_pair:
            return
        if _close(twice.count, once.count):
            raise LossError(f"loss {self.name!r}: its count is the same for twice the rows; {ADVICE}")
        if _close(float(twice.total), single):
            raise LossError(f"loss {self.name!r} returns (mean, count): {ADVICE}")

    def to(self, dtype: torch.dtype) -> Loss:
        module = self._function
        if not isinstance(module, nn.Module) or _is_of(module, dtype):
            return self
        return FunctionLoss(copy.deepcopy(module).to(dtype), self.name)


class ScalarSum:
    """A scalar, put to the test once: it must be the sum over the rows. A loss of zero proves nothing yet."""

    def __init__(self, name: str) -> None:
        self._name, self._proven = name, False

    def summed(self, value: Tensor, function: Callable[..., Any], output: Any, target: Values) -> Summed:
        """The scalar and the number of rows. Raises LossError for a mean, and for rows that mix."""
        if not self._proven:
            self._prove(value, function, output, target)
        return Summed(value, float(row_count(target)))

    @torch.no_grad()
    def _prove(self, once: Tensor, function: Callable[..., Any], output: Any, target: Values) -> None:
        rows, single = row_count(target), float(once.detach())

        def value(output: Any, target: Values) -> float:
            with torch_random():  # the test must not move the random numbers of the gradient
                return float(_floats(function(output, target), self._name))

        twice = value(doubled(output, rows), joined((target, target)))
        cuts = [(0, rows // 2), (rows // 2, rows)] if rows > 1 else [(0, rows)]
        parts = sum(value(part_of(output, rows, lo, hi), _rows(target, lo, hi)) for lo, hi in cuts)
        if not math.isfinite(single + twice + parts):
            return  # which is told as what it is
        if not (_close(twice, 2.0 * single) and _close(parts, single)):
            found = "a mean over the rows" if _close(twice, single) else "a number that is no sum over the rows"
            raise LossError(f"loss {self._name!r} returns {found} of a pass: {ADVICE}")
        self._proven = single != 0.0 and rows > 1


class Weighing(Loss):
    """Any loss, over targets whose rows have weights as well: they multiply a row's loss and its count."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self.name = loss.name

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return self._loss.separable

    @property
    def counts_by_target(self) -> bool:  # type: ignore[override]
        return self._loss.counts_by_target

    def summed(self, output: Any, target: Values) -> Summed:
        if not isinstance(target, Weighted):
            return self._loss.summed(output, target)
        found = self._weighed(self._loss.each(output, target.target), target.weights)
        if found is None:
            raise LossError(f"loss {self.name!r} has no value for each row, which the rows' weights could multiply")
        return Summed(found.values.sum(), float(found.counts.sum()))

    def by_row(self, output: Any, target: Values) -> ByRow | None:
        if not isinstance(target, Weighted):
            return self._loss.by_row(output, target)
        return self._weighed(self._loss.by_row(output, target.target), target.weights)

    def check(self, output: Any, target: Values) -> None:
        self._loss.check(output, bare(target))

    def to(self, dtype: torch.dtype) -> Loss:
        return Weighing(self._loss.to(dtype))

    def _weighed(self, found: ByRow | None, weights: Tensor) -> ByRow | None:
        if found is None:
            return None
        return ByRow(found.values * weights.to(found.values.dtype), found.counts * weights.double())


def loss_from(source: Any, name: str) -> Loss:
    """The Loss of a torch.nn.functional name, a loss module or a function of (output, target). Raises LossError."""
    return Weighing(_loss_from(source, name))


def _loss_from(source: Any, name: str) -> Loss:
    """The Loss of a torch.nn.functional name, a loss module or a function of (output, target). Raises LossError."""
    if isinstance(source, str):
        function = getattr(nn.functional, source, None)
        if function is None or "reduction" not in inspect.signature(function).parameters:
            raise LossError(f"torch.nn.functional has no loss {source!r}; name one of its losses, or module:function")
        return _reduced_function(function, name)
    if isinstance(source, type) and issubclass(source, nn.Module):
        source = _made(source, name)
    if isinstance(source, nn.Module):
        return _module(source, name)
    if not callable(source):
        raise LossError(f"loss {name!r} is {type(source).__name__}, expected a function of (output, target)")
    return _reduced_function(source, name) if takes_reduction(source) else FunctionLoss(source, name)


def _made(kind: type[nn.Module], name: str) -> nn.Module:
    """A loss module of this class, as its defaults have it."""
    try:
        return kind()
    except TypeError as error:
        raise LossError(f"loss {name!r} is a class that needs arguments ({error}): name an instance of it") from error


def _module(module: nn.Module, name: str) -> Loss:
    if any(parameter.requires_grad for parameter in module.parameters()):
        raise LossError(
            f"loss {name!r} has parameters of its own, which no optimizer steps: make it part of the model, whose "
            "output a function of (output, target) then reads"
        )
    if not isinstance(getattr(module, "reduction", None), str):
        return FunctionLoss(module, name)
    return _reduced_module(module, name)


def _reduced_module(module: nn.Module, name: str) -> Loss:
    reduction = str(module.reduction)
    _refuse_sum(reduction, name)
    if reduction not in MEANS:
        return FunctionLoss(module, name)
    return ReducedLoss(_Reducing(module), reduction, _known(rule_of_module(module), name), name)


def _reduced_function(function: Callable[..., Any], name: str) -> Loss:
    reduction = str(inspect.signature(function).parameters["reduction"].default)
    _refuse_sum(reduction, name)
    if reduction not in MEANS:
        return FunctionLoss(function, name)
    return ReducedLoss(function, reduction, _known(rule_of_function(function, reduction), name), name)


def _known(rule: Rule | None, name: str) -> Rule:
    if rule is None:
        raise LossError(
            f"loss {name!r}: what its mean divides by is not known here; call it from a function of (output, target), "
            f"with reduction='none' where it has one, and {ADVICE}"
        )
    return rule


class _Reducing:
    """A loss module as a function with `reduction`."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.signed = module, module.forward
        self._copies: dict[str, nn.Module] = {}

    def __call__(self, output: Any, *target: Any, reduction: str, **named: Any) -> Any:
        if reduction not in self._copies:
            self._copies[reduction] = copy.copy(self.module)  # shares its tensors
            self._copies[reduction].reduction = reduction  # type: ignore[assignment]
        return self._copies[reduction](output, *target, **named)


def takes_reduction(function: Callable[..., Any]) -> bool:
    """A function whose `reduction` is a word by default: torch's, torchvision's, a functools.partial of one."""
    try:
        found = inspect.signature(function).parameters.get("reduction")
    except (TypeError, ValueError):
        return False
    return found is not None and isinstance(found.default, str)


def _require_targets(function: Callable[..., Any], target: Values, name: str) -> None:
    """Raises LossError when a loss takes more than an output and these targets."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.kind not in variable]
    needed = [each.name for each in parameters if each.default is each.empty and each.name != "reduction"]
    given = len(leaves(target))
    if len(needed) > 1 + given:
        raise LossError(
            f"loss {name!r} takes {', '.join(needed[:-1])} and {needed[-1]}, which are more than an output and {given} "
            f"of targets: give the others as y.1, ..., or call it from a function of (output, target) and {ADVICE}"
        )


def _refuse_sum(reduction: str, name: str) -> None:
    if reduction == "sum":
        raise LossError(
            f"loss {name!r} has reduction='sum', but a step divides by a count: use reduction='mean' with lr times the "
            f"rows of a batch, or {ADVICE}"
        )


def _floats(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        found = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
        raise LossError(f"loss {name!r} returned {found}, expected a tensor of floats: {ADVICE}")
    return value


def _sum_and_count(pair: Any, name: str) -> Summed:
    total, count = pair
    _floats(total, name)
    if isinstance(count, Tensor) and count.requires_grad:
        raise LossError(f"loss {name!r}: its count depends on the weights, which a division after decoding would miss")
    if total.numel() != 1 or (isinstance(count, Tensor) and count.numel() != 1):
        raise LossError(f"loss {name!r} returned a pair that is no (sum, count): both must be one number")
    number = float(count)
    if not (math.isfinite(number) and number >= 0):
        raise LossError(f"loss {name!r}: its count is {number:g}, which nothing can be divided by")
    return Summed(total.reshape(()), number)


def _rows(target: Values, lo: int, hi: int) -> Values:
    found: Values = mapped(lambda each: each[lo:hi], target)
    return found


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= TOLERANCE * abs(other)


def _is_of(module: nn.Module, dtype: torch.dtype) -> bool:
    """Are its floating tensors of this type?"""
    tensors = (*module.parameters(), *module.buffers())
    return all(each.dtype == dtype for each in tensors if each.is_floating_point())
