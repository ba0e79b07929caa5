"""One model's state as bytes and back, bit for bit: weights as safetensors, and how it is stepped as the codec of
`lambda_worker/state.py` has it.

Nothing here is unpickled freely. Checkpoints of earlier versions hold what torch.save wrote, which torch loads with
`weights_only=True`. Knows neither files nor stores. Read next: `trainer.py`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from gradmux.lambda_worker.optimizers import label
from gradmux.lambda_worker.state import decode_state, encode_state, is_state, packed_tensors
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import ModelState
from gradmux.orchestrator.training.code import first_line
from gradmux.orchestrator.training.models import Trained

UNSAVED = "buffers"
"""key of the progress: buffers that no state dict has"""


def save_state(trained: Trained) -> ModelState:
    """The model's state now."""
    progress = {"kinds": _kinds(trained), UNSAVED: _unsaved(trained.module), **trained.stepper.state()}
    return ModelState(trained.steps, save_weights(trained.module), encode_state(progress))


def load_state(trained: Trained, state: ModelState) -> None:
    """Puts a saved state into a freshly built model. Raises ConfigError when it does not fit."""
    where = f"checkpoint of model {trained.plan.name!r}"
    load_weights(trained.module, state.weights, where)
    progress = _read_progress(state.progress, where)
    if progress["kinds"] != _kinds(trained):
        raise ConfigError(f"{where}: it was stepped by {progress['kinds']}, not by {_kinds(trained)}")
    try:
        trained.stepper.load_state(progress)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise ConfigError(f"{where}: not this optimizer's state: {first_line(error)}") from error
    _set_unsaved(trained.module, progress.get(UNSAVED, {}), where)
    trained.steps = state.steps


def _unsaved(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that a state dict leaves out (`persistent=False`): a forward may have changed them, too."""
    saved = {id(tensor) for tensor in _named(module).values()}
    return {name: buffer for name, buffer in module.named_buffers() if id(buffer) not in saved}


@torch.no_grad()
def _set_unsaved(module: nn.Module, values: Mapping[str, Tensor], where: str) -> None:
    """Sets them; checkpoints of earlier versions have none. Raises ConfigError when one is of another model."""
    own = _unsaved(module)
    if values:
        _check_same(own, values, where)
    for name, value in values.items():
        own[name].copy_(value)


def _kinds(trained: Trained) -> str:
    """The classes whose states these are."""
    optimizer, scheduler = label(trained.plan.optimizer), trained.plan.scheduler
    return optimizer if scheduler is None else f"{optimizer} with {label(scheduler)}"


def _read_progress(raw: bytes, where: str) -> dict[str, Any]:
    """A table that says, at least, by what classes the model was stepped. Raises ConfigError."""
    try:
        found = decode_state(raw) if is_state(raw) else torch.load(io.BytesIO(raw), weights_only=True)
    except Exception as error:  # torch raises all kinds of errors for damaged bytes
        raise ConfigError(f"{where}: its optimizer state cannot be read: {first_line(error)}") from error
    kinds = found.get("kinds") if isinstance(found, dict) else None
    if not isinstance(kinds, str) or not kinds.isprintable() or not _is_table_of_tensors(found.get(UNSAVED, {})):
        raise ConfigError(f"{where}: its optimizer state cannot be read: it is none")
    return found


def _is_table_of_tensors(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, Tensor) for each in value.values())


def save_weights(module: nn.Module) -> bytes:
    """Parameters and buffers as safetensors, whatever memory they share or how they lie in it: copied once."""
    return packed_tensors(_named(module), {"format": "pt"})


@torch.no_grad()
def load_weights(module: nn.Module, weights: bytes, where: str) -> None:
    """Sets parameters and buffers. Raises ConfigError when names or shapes differ; then nothing was set."""
    try:
        loaded = safetensors.torch.load(weights)
    except SafetensorError as error:
        raise ConfigError(f"{where}: not safetensors: {first_line(error)}") from error
    own = _named(module)
    _check_same(own, loaded, where)
    for name, tensor in own.items():
        tensor.copy_(loaded[name])


def _check_same(own: Mapping[str, Tensor], loaded: Mapping[str, Tensor], where: str) -> None:
    if own.keys() != loaded.keys():
        names = ", ".join(sorted(own.keys() ^ loaded.keys())[:3])
        raise ConfigError(f"{where}: of another model, {names} is in one of them only")
    for name, tensor in own.items():
        if tensor.shape != loaded[name].shape or tensor.dtype != loaded[name].dtype:
            raise ConfigError(
                f"{where}: of another model, {name} is {loaded[name].dtype} {tuple(loaded[name].shape)} there and "
                f"{tensor.dtype} {tuple(tensor.shape)} here"
            )


def _named(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of the state dict, one that is tied into several places once."""
    named: dict[str, Tensor] = {}
    seen: set[int] = set()
    entries: Mapping[str, Any] = module.state_dict(keep_vars=True)
    for name, value in entries.items():
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            named[name] = value
    return named
