"""All of a model between two steps, as bytes and back, bit for bit: what a stretch begins with and ends with.

Parameters and buffers by name, and what steps them: `state.py` has the format. Both sides use it.
Read next: `stretch.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.state import StateError, decode_state, encode_state
from gradmux.lambda_worker.step import Stepper

__all__ = ["encode_whole", "load_whole"]


def encode_whole(model: Model, stepper: Stepper) -> bytes:
    """The state now. Raises StateError."""
    return encode_state({"module": named(model.module), "stepper": stepper.state()})


@torch.no_grad()
def load_whole(model: Model, stepper: Stepper, raw: bytes | bytearray | memoryview) -> None:
    """Puts model and stepper into this state. Raises StateError when it is of another model or optimizer."""
    state = decode_state(bytes(raw))
    own, loaded = named(model.module), state.get("module", {})
    if own.keys() != loaded.keys() or any(own[name].shape != loaded[name].shape for name in own):
        raise StateError("the state is of another model")
    for name, tensor in own.items():
        tensor.copy_(loaded[name])
    try:
        stepper.load_state(state["stepper"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"the state is of another optimizer: {error}") from error


def named(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and all buffers, those that no state dict has too; a tied tensor once, under its first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
