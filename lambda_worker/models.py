"""Model spec -> module, ready for gradients: built once, then only its weights change.

A spec is a small JSON object (`ModelSpec`): a factory by import path or cloudpickle, its arguments, a loss, a dtype.
Does not know where specs and snapshots live (`tasks.py` does). The orchestrator uses it to compute the same gradients
in its own process. Read `gradient.py` next.
"""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import Raw
from torch import Tensor, nn

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.codec import Message, Natural, Text, decode, from_raw, to_raw
from gradmux.lambda_worker.losses import Loss, loss_from
from gradmux.lambda_worker.norms import freeze_norms, norm_layers
from gradmux.lambda_worker.origin import OriginError, named
from gradmux.lambda_worker.randomness import torch_random

__all__ = ["Model", "ModelError", "ModelSpec", "build", "encode_spec", "parse_spec"]


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
    """Of torch while the factory runs: what no snapshot carries, such as integer buffers, is equal everywhere."""


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


def encode_spec(spec: ModelSpec) -> bytes:
    """The spec as JSON with sorted keys: equal specs are equal bytes, so that its hash can be its key."""
    factory, loss = (each if isinstance(each, str) else _Pickled(to_raw(each)) for each in (spec.factory, spec.loss))
    document = _Document(factory, spec.args, loss, spec.dtype, spec.seed)  # type: ignore[arg-type]
    return msgspec.json.encode(document, order="sorted")


def parse_spec(raw: bytes) -> ModelSpec:
    """The inverse of `encode_spec`. Raises ContractError."""
    document = decode(raw, _Document, "model spec")
    factory, loss = _code(document.factory, "factory"), _code(document.loss, "loss")
    return ModelSpec(factory, document.args, loss, document.dtype, document.seed)


def _code(code: str | _Pickled, name: str) -> str | bytes:
    return code if isinstance(code, str) else bytes(from_raw(code.cloudpickle, f"model spec.{name}.cloudpickle"))


class Model:
    """A module in training mode (batch norm frozen), its loss, and the flat order of its tensors."""

    def __init__(self, module: nn.Module, loss: Loss, dtype: str = "float32") -> None:
        """Takes the module over: casts it to `dtype` and sets its mode."""
        self.module = module.to(flat.DTYPES[dtype])
        self.loss = loss.to(flat.DTYPES[dtype])
        self.dtype = flat.DTYPES[dtype]
        self.parameters = flat.parameters(module)
        self.norms = norm_layers(module)
        self.draws = False
        """Whether a forward pass was seen to draw random numbers (dropout)."""
        self._buffers = flat.float_buffers(module)
        self._snapshot: Tensor | None = None
        if not any(parameter.requires_grad for parameter in self.parameters):
            raise ModelError("the model has no parameter that is trained")
        freeze_norms(module)

    def load(self, snapshot: Tensor) -> None:
        """Sets parameters and float buffers. Loading the snapshot that is loaded already costs nothing."""
        if snapshot is self._snapshot:
            return
        self._snapshot = None  # if the copy fails half way, nothing is loaded
        flat.load_snapshot(self.module, snapshot)
        self._snapshot = snapshot

    def reset_buffers(self) -> None:
        """Undoes what a forward pass did to float buffers, so that chunks do not depend on what ran before them."""
        if self._buffers and self._snapshot is not None:
            count = sum(buffer.numel() for buffer in self._buffers)
            flat.unflatten_into(self._snapshot[self._snapshot.numel() - count :], self._buffers)


def build(spec: ModelSpec) -> Model:
    """The model of a spec. Raises ModelError and LossError; the factory's own exceptions pass through."""
    factory = _factory(spec.factory)
    with torch_random(spec.seed):
        module = factory(**spec.args)
    if not isinstance(module, nn.Module):
        raise ModelError(f"the factory returned {type(module).__name__}, expected a torch.nn.Module")
    plain_name = isinstance(spec.loss, str) and ":" not in spec.loss
    loss = loss_from(spec.loss if plain_name else _resolve(spec.loss, "loss"), _label(spec.loss))
    return Model(module, loss, spec.dtype)


def _factory(code: str | bytes) -> Any:
    """A class of modules or a Python function, which may return one: nothing else is called to find out."""
    factory = _resolve(code, "factory")
    if inspect.isclass(factory) and not issubclass(factory, nn.Module):
        raise ModelError(f"factory {_label(code)!r}: is a class, but no torch.nn.Module")
    if inspect.isbuiltin(factory):
        raise ModelError(f"factory {_label(code)!r}: is a built-in function, which makes no torch.nn.Module")
    return factory


def _resolve(code: str | bytes, role: str) -> Any:
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
