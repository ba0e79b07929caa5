"""Model spec -> module, ready for gradients: built once, then only its weights change.

A spec is a small JSON object (`ModelSpec`): a factory by import path or cloudpickle, its arguments, a loss, a dtype.
Does not know where specs and snapshots live (`tasks.py` does). The orchestrator uses it to compute the same gradients
in its own process. Read `gradient.py` next.
"""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import torch
from msgspec import Raw
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.buffers import FIXED_SUMS
from gradmux.lambda_worker.codec import Message, Natural, Positive, Text, decode, from_raw, to_raw
from gradmux.lambda_worker.losses import Loss, loss_from
from gradmux.lambda_worker.metrics import Metrics, metric_from
from gradmux.lambda_worker.norms import Rule, training_norms
from gradmux.lambda_worker.origin import OriginError, named
from gradmux.lambda_worker.randomness import torch_random

__all__ = ["Model", "ModelError", "ModelSpec", "build", "encode_spec", "parse_spec"]


NO_METRICS: Metrics = MappingProxyType({})
NO_HOLDER = 1e-9
"""a decoded 1 as small as this is a 0"""
HALF = 0.5


class ModelError(ValueError):
    """A spec that leads to no usable model."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """How to make a model and its loss."""

    factory: str | bytes
    """An import path, module:function, or the cloudpickle of a function; it returns an nn.Module."""
    args: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the factory: JSON values."""
    loss: str | bytes = "cross_entropy"
    """A torch.nn.functional name, module:function, or the cloudpickle of a function or loss module."""
    dtype: str = "float32"
    """float32 or float64: of parameters, buffers and floating inputs."""
    seed: int = 0
    """Of the random numbers that the factory draws."""
    fixed: bool = False
    """Every pass is a forward of its own (`gradient.py`); False: a forward takes as many rows as a task gives it."""
    norms: Rule = "running"
    """How batch normalisation normalises: `norms.py`; "batch" takes fixed passes."""
    recipe: bytes | None = None
    """For workers that make steps: the cloudpickle of a function that returns the `recipe.Recipe`."""
    idle: tuple[int, ...] = ()
    """Parameters, by index, without part in the loss: `step.Stepper.idle`."""
    metrics: dict[str, str | bytes] = field(default_factory=dict)
    """By name: what `metrics.metric_from` takes, or the cloudpickle of that."""
    most_rows: int | None = None
    """Of one forward and backward where passes are free, so that it fits into a worker's memory; None: any number."""


class _Pickled(Message, frozen=True):
    """A function that travels by value."""

    cloudpickle: Raw


class _Document(Message, frozen=True):
    """A spec as JSON."""

    factory: Text | _Pickled
    args: dict[str, Any]
    loss: Text | _Pickled
    dtype: Literal["float32", "float64"]
    seed: Natural = 0
    fixed: bool = False
    norms: Rule = "running"
    recipe: _Pickled | None = None
    idle: tuple[Natural, ...] = ()
    metrics: dict[str, Text | _Pickled] = msgspec.field(default_factory=dict)
    most_rows: Positive | None = None


def encode_spec(spec: ModelSpec) -> bytes:
    """The spec as JSON with sorted keys: equal specs are equal bytes, so that its hash can be its key."""
    factory, loss = (each if isinstance(each, str) else _Pickled(to_raw(each)) for each in (spec.factory, spec.loss))
    recipe = None if spec.recipe is None else _Pickled(to_raw(spec.recipe))
    dtype: Any = spec.dtype
    how = dtype, spec.seed, spec.fixed, spec.norms
    metrics = {name: each if isinstance(each, str) else _Pickled(to_raw(each)) for name, each in spec.metrics.items()}
    document = _Document(factory, spec.args, loss, *how, recipe, spec.idle, metrics, spec.most_rows)
    return msgspec.json.encode(document, order="sorted")


def parse_spec(raw: bytes) -> ModelSpec:
    """The inverse of `encode_spec`. Raises ContractError."""
    document = decode(raw, _Document, "model spec")
    factory, loss = _code(document.factory, "factory"), _code(document.loss, "loss")
    plain = document.args, loss, document.dtype, document.seed, document.fixed, document.norms
    recipe = None if document.recipe is None else _code(document.recipe, "recipe")
    assert not isinstance(recipe, str)
    metrics = {name: _code(each, f"metrics.{name}") for name, each in document.metrics.items()}
    return ModelSpec(factory, *plain, recipe, document.idle, metrics, document.most_rows)


def _code(code: str | _Pickled, name: str) -> str | bytes:
    return code if isinstance(code, str) else bytes(from_raw(code.cloudpickle, f"model spec.{name}.cloudpickle"))


class Model:
    """A module in training mode, its loss, and the flat order of its tensors."""

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        dtype: str = "float32",
        *,
        fixed: bool = False,
        norms: Rule = "running",
        most_rows: int | None = None,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        """Takes the module over: casts it to `dtype` and sets its mode. What is named is `ModelSpec`'s."""
        self.module = flat.cast(module, flat.DTYPES[dtype])
        self.loss = loss.to(flat.DTYPES[dtype])
        self.dtype = flat.DTYPES[dtype]
        self.parameters = flat.parameters(module)
        self.fixed, self._rule, self.most_rows = fixed, norms, most_rows
        self.metrics = {name: metrics[name].to(self.dtype) for name in sorted(metrics)}
        """In the order of their names, since a spec keeps no other."""
        self.statistics_from = FIXED_SUMS + 2 * len(metrics)
        """Where batch norm's begin among the sums of a result: before them stands what every model has, and metrics."""
        self.norms: list[_BatchNorm] = []
        self.train()
        self.draws = False
        """Whether a forward pass was seen to draw random numbers (dropout)."""
        running = {id(buffer) for layer in self.norms for buffer in layer.buffers(recurse=False)}
        self.buffers = [buffer for buffer in module.buffers() if id(buffer) not in running]
        """All but the running statistics, which travel as sums."""
        self._all = list(module.buffers())
        self._before: list[Tensor] | None = None
        self._snapshot: Tensor | None = None
        if not any(parameter.requires_grad for parameter in self.parameters):
            raise ModelError("the model has no parameter that is trained")
        if norms == "batch" and self.norms and not fixed:
            raise ModelError('norms = "batch" needs fixed passes, for what a pass is changes what its rows are worth')

    def train(self) -> None:
        """Training mode, as the user's own `train()` has it, and batch norm under its rule."""
        self.norms = training_norms(self.module, self._rule)

    def load(self, snapshot: Tensor) -> None:
        """Sets parameters and buffers. Loading the snapshot that is loaded already costs nothing."""
        if snapshot is self._snapshot:
            return
        self._snapshot = None  # if the copy fails half way, nothing is loaded
        flat.load_snapshot(self.module, snapshot)
        self._snapshot, self._before = snapshot, [buffer.clone() for buffer in self._all]

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Undoes what a forward pass did to buffers, so that passes do not depend on what ran before them."""
        if self._before is not None and self._snapshot is not None:
            for buffer, before in zip(self._all, self._before, strict=True):
                buffer.copy_(before)

    def hold(self) -> None:
        """What parameters and buffers are now is what the next passes start from."""
        self._snapshot, self._before = torch.empty(0), [buffer.clone() for buffer in self._all]

    def require_buffers_kept(self) -> None:
        """Raises ModelError that names a buffer which a forward has changed, when passes are not fixed.

        The trial saw no such buffer, so that nothing would carry what became of it.
        """
        for buffer, before in zip(self._all, self._before or (), strict=False):
            if not torch.equal(buffer, before):
                name = next(name for name, each in self.module.named_buffers() if each is buffer)
                raise ModelError(
                    f"a forward changes buffer {name}, which it did not when the job was tried: submit it again with "
                    "training.pass_rows"
                )

    def changed_buffers(self) -> Tensor | None:
        """What a forward made of `buffers`, as float64 numbers, (b,); None when it has changed none.

        A 1; for each buffer 1 or 0, whether it has changed; then the values of all, zeros for those that have not.
        Raises OverflowError for whole numbers that float64 cannot tell apart.
        """
        known = {id(buffer): before for buffer, before in zip(self._all, self._before or (), strict=False)}
        changed = [not torch.equal(known.get(id(buffer), buffer), buffer) for buffer in self.buffers]
        if not any(changed):
            return None
        values = [
            flat.numbers(buffer if new else torch.zeros_like(buffer))
            for buffer, new in zip(self.buffers, changed, strict=True)
        ]
        return torch.cat([torch.tensor([1.0, *changed], dtype=torch.float64), *values])

    def set_buffers(self, section: Tensor) -> bool:
        """Takes over a decoded section, (b,) float64; False when no result held the batch's first pass."""
        if section.numel() == 0 or abs(float(section[0])) <= NO_HOLDER:
            return False
        count, section = len(self.buffers), section / section[0]
        sizes = [flat.numbers(torch.zeros_like(buffer)).numel() for buffer in self.buffers]
        parts = torch.split(section[1 + count :], sizes)
        for buffer, changed, part in zip(self.buffers, section[1 : 1 + count].tolist(), parts, strict=True):
            if changed > HALF:
                flat.set_numbers(part, [buffer])
        self._snapshot = None
        return True


def build(spec: ModelSpec) -> Model:
    """The model of a spec. Raises ModelError and LossError; the factory's own exceptions pass through."""
    factory = _factory(spec.factory)
    with torch_random(spec.seed):
        module = factory(**spec.args)
    if not isinstance(module, nn.Module):
        raise ModelError(f"the factory returned {type(module).__name__}, expected a torch.nn.Module")
    loss = loss_from(_named_or_found(spec.loss, "loss"), _label(spec.loss))
    metrics = {name: metric_from(_named_or_found(code, "metric"), name) for name, code in spec.metrics.items()}
    how: dict[str, Any] = {"fixed": spec.fixed, "norms": spec.norms, "most_rows": spec.most_rows, "metrics": metrics}
    return Model(module, loss, spec.dtype, **how)


def _named_or_found(code: str | bytes, role: str) -> Any:
    """A plain name as it is; else what an import path or a pickle stands for."""
    return code if isinstance(code, str) and ":" not in code else resolve(code, role)


def _factory(code: str | bytes) -> Any:
    """A class of modules or a Python function, which may return one: nothing else is called to find out."""
    factory = resolve(code, "factory")
    if inspect.isclass(factory) and not issubclass(factory, nn.Module):
        raise ModelError(f"factory {_label(code)!r}: is a class, but no torch.nn.Module")
    if inspect.isbuiltin(factory):
        raise ModelError(f"factory {_label(code)!r}: is a built-in function, which makes no torch.nn.Module")
    return factory


def resolve(code: str | bytes, role: str) -> Any:
    """What the code of a spec or manifest stands for. Raises ModelError."""
    if isinstance(code, bytes):
        return pickle.loads(code)  # the user's own code, in the user's own sandbox
    module_name, _, attribute = code.partition(":")
    if not module_name or not attribute:
        raise ModelError(f"{role} {code!r}: expected module:function")
    try:
        return named(module_name, attribute, role)
    except OriginError as error:
        raise ModelError(str(error)) from error


def _label(code: str | bytes) -> str:
    return code if isinstance(code, str) else "<pickled>"
