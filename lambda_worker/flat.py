"""A model as one flat vector, in the one order that both sides use.

    snapshot = parameters, then floating-point buffers
    gradient = parameters alone

Parameters come in `named_parameters()` order, buffers in `named_buffers()` order; a tensor that is tied into several
places counts once, where its first name stands. Each tensor is flattened row-major, whatever its memory layout. Frozen
parameters (`requires_grad = False`) are part of both; their gradient is zero. Integer buffers are in neither.

Knows nothing of S3 or requests; used by the worker and by the orchestrator. Read `gradient.py` next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

__all__ = [
    "flatten",
    "float_buffers",
    "from_bytes",
    "load_snapshot",
    "parameter_count",
    "parameters",
    "snapshot",
    "snapshot_size",
    "to_bytes",
    "unflatten",
    "unflatten_into",
]

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters in flat order, tied ones once."""
    return [parameter for _, parameter in model.named_parameters()]


def float_buffers(model: nn.Module) -> list[Tensor]:
    """The floating-point buffers in flat order, shared ones once."""
    return [buffer for _, buffer in model.named_buffers() if buffer.is_floating_point()]


def parameter_count(model: nn.Module) -> int:
    """Elements of the gradient."""
    return sum(parameter.numel() for parameter in parameters(model))


def snapshot_size(model: nn.Module) -> int:
    """Elements of a snapshot."""
    return parameter_count(model) + sum(buffer.numel() for buffer in float_buffers(model))


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """The tensors end to end as a new vector, detached. All must have one dtype."""
    parts = [tensor.detach().reshape(-1) for tensor in tensors]
    if len({part.dtype for part in parts}) > 1:
        raise TypeError(f"one dtype is needed for a flat vector, got {sorted({str(part.dtype) for part in parts})}")
    return torch.cat(parts) if parts else torch.empty(0)


def unflatten(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `flat` in the shapes of `like`, in order. Raises ValueError when the sizes differ."""
    sizes = [tensor.numel() for tensor in like]
    if flat.ndim != 1 or flat.numel() != sum(sizes):
        raise ValueError(f"the flat vector has {flat.numel()} elements, the model takes {sum(sizes)}")
    pieces = torch.split(flat, sizes) if sizes else ()
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, like, strict=True)]


@torch.no_grad()
def unflatten_into(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copies `flat` into the tensors; they keep their memory, layout and dtype."""
    for tensor, values in zip(tensors, unflatten(flat, tensors), strict=True):
        tensor.copy_(values)


def snapshot(model: nn.Module) -> Tensor:
    """The model's state as a new flat vector: parameters, then floating-point buffers."""
    return flatten([*parameters(model), *float_buffers(model)])


def load_snapshot(model: nn.Module, flat: Tensor) -> None:
    """The inverse of `snapshot`. Raises ValueError when the sizes differ."""
    unflatten_into(flat, [*parameters(model), *float_buffers(model)])


def to_bytes(flat: Tensor) -> bytes:
    """A flat vector as little-endian bytes of its own dtype: the content of a snapshot object."""
    array = flat.detach().cpu().contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def from_bytes(raw: bytes | bytearray, dtype: str) -> Tensor:
    """The inverse of `to_bytes` for dtype "float32" or "float64". Raises ValueError for a ragged length."""
    wire = np.dtype(dtype).newbyteorder("<")
    if len(raw) % wire.itemsize:
        raise ValueError(f"{len(raw)} bytes are no whole number of {dtype} elements")
    return torch.from_numpy(np.frombuffer(raw, dtype=wire).astype(dtype))
