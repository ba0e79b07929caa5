"""A model as one flat vector, in the one order that both sides use.

    snapshot = parameters, then floating-point buffers, then the bits of all other buffers
    gradient = parameters alone

Parameters come in `named_parameters()` order, buffers in `named_buffers()` order; a tensor that is tied into several
places counts once, where its first name stands. Each tensor is flattened row-major, whatever its memory layout. Frozen
parameters (`requires_grad = False`) are part of both; their gradient is zero. Buffers of other types than the model's
(narrow floats, integers, complex numbers) keep theirs: a narrow float is exact in the snapshot's type, and what is no
float travels as float64, bit by bit.

Knows nothing of S3 or requests; used by the worker and by the orchestrator. Read `gradient.py` next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

__all__ = [
    "cast",
    "flatten",
    "float_buffers",
    "from_bytes",
    "from_file",
    "load_snapshot",
    "numbers",
    "other_buffers",
    "parameter_count",
    "parameters",
    "pieces",
    "set_numbers",
    "snapshot",
    "snapshot_size",
    "to_bytes",
    "to_view",
    "unflatten",
    "unflatten_into",
]

EXACT_BELOW = 2.0**53
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters in flat order, tied ones once."""
    return [parameter for _, parameter in model.named_parameters()]


def float_buffers(model: nn.Module) -> list[Tensor]:
    """The floating-point buffers in flat order, shared ones once."""
    return [buffer for _, buffer in model.named_buffers() if buffer.is_floating_point()]


def other_buffers(model: nn.Module) -> list[Tensor]:
    """Integer, boolean and complex buffers in flat order; without batch norm's counters, which no forward needs."""
    named = (item for item in model.named_buffers() if not item[1].is_floating_point())
    return [buffer for name, buffer in named if name.rpartition(".")[2] != "num_batches_tracked"]


def parameter_count(model: nn.Module) -> int:
    """Elements of the gradient."""
    return sum(parameter.numel() for parameter in parameters(model))


def snapshot_size(model: nn.Module) -> int:
    """Elements of a snapshot."""
    others = sum(numbers(buffer).numel() for buffer in other_buffers(model))
    lanes = 8 // parameters(model)[0].element_size() if others else 0
    return parameter_count(model) + sum(buffer.numel() for buffer in float_buffers(model)) + lanes * others


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
    return flatten(pieces(model))


def pieces(model: nn.Module) -> Iterator[Tensor]:
    """The same, one tensor after the other, of which large ones are no copies."""
    own, others = parameters(model), other_buffers(model)
    yield from own
    yield from (buffer.to(own[0].dtype) for buffer in float_buffers(model))
    if others:
        yield torch.cat([numbers(buffer) for buffer in others]).view(own[0].dtype)


def load_snapshot(model: nn.Module, flat: Tensor) -> None:
    """The inverse of `snapshot`. Raises ValueError when the sizes differ."""
    floats, others = [*parameters(model), *float_buffers(model)], other_buffers(model)
    size = sum(tensor.numel() for tensor in floats)
    if flat.numel() != snapshot_size(model):
        raise ValueError(f"the flat vector has {flat.numel()} elements, the model takes {snapshot_size(model)}")
    unflatten_into(flat[:size], floats)
    if others:
        set_numbers(flat[size:].clone().view(torch.float64), others)


def numbers(buffer: Tensor) -> Tensor:
    """A tensor of any type as float64 numbers, (elements,), or two for each complex one. Raises OverflowError."""
    flat = buffer.detach().reshape(-1)
    values = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).to(torch.float64)
    if not (flat.is_floating_point() or flat.is_complex()) and values.numel() and values.abs().max() >= EXACT_BELOW:
        raise OverflowError(f"a buffer of {buffer.dtype} holds {values.abs().max():.0f}, float64 is exact below 2^53")
    return values


@torch.no_grad()
def set_numbers(values: Tensor, tensors: Sequence[Tensor]) -> None:
    """The inverse of `numbers`, for several tensors one after the other; what is whole is rounded."""
    sizes = [tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in tensors]
    for tensor, part in zip(tensors, torch.split(values, sizes), strict=True):
        if tensor.is_complex():
            tensor.copy_(torch.view_as_complex(part.clone().view(*tensor.shape, 2)))
        elif tensor.is_floating_point():
            tensor.copy_(part.view(tensor.shape))
        else:
            tensor.copy_(part.round().view(tensor.shape))


def cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The model with its floats of 32 and 64 bits as `dtype`, in place: narrow and complex ones stay as they are."""
    wide = (torch.float32, torch.float64)
    done: nn.Module = model._apply(lambda tensor: tensor.to(dtype) if tensor.dtype in wide else tensor)  # type: ignore[no-untyped-call]
    return done


def to_bytes(flat: Tensor) -> bytes:
    """A flat vector as little-endian bytes of its own dtype: the content of a snapshot object."""
    array = flat.detach().cpu().contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def to_view(flat: Tensor) -> memoryview:
    """The same bytes where they lie, if this machine is little endian, as nearly all are."""
    array = flat.detach().cpu().contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B")


def from_bytes(raw: bytes | bytearray, dtype: str) -> Tensor:
    """The inverse of `to_bytes` for dtype "float32" or "float64". Raises ValueError for a ragged length."""
    wire = np.dtype(dtype).newbyteorder("<")
    if len(raw) % wire.itemsize:
        raise ValueError(f"{len(raw)} bytes are no whole number of {dtype} elements")
    return torch.from_numpy(np.frombuffer(raw, dtype=wire).astype(dtype))


def from_file(path: str, dtype: str) -> Tensor:
    """The same of a file, which is mapped: its pages are read as they are needed, and are no memory of the process."""
    wire = np.dtype(dtype).newbyteorder("<")
    return torch.from_numpy(np.memmap(path, dtype=wire, mode="c").astype(dtype, copy=False))
