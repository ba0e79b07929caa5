"""State as bytes and back, bit for bit: JSON with the tensors beside it, in one safetensors file. Never a pickle.

Optimizers' and schedulers' state dicts are nested dicts, lists and numbers (infinite ones too: ReduceLROnPlateau begins
with one) with tensors in them. A tensor becomes {"$tensor": "3"} in the JSON, which is the file's metadata; whatever
else JSON has not is an object with one key that begins with $. What is none of all that cannot be state.

Used for checkpoints, and for what travels between a client and workers that make steps. Read `step.py` next.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

__all__ = ["StateError", "decode_state", "encode_state", "is_state", "packed_tensors"]

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
}
"""as safetensors calls them"""
KEY = "gradmux-state-1"
"""Of the JSON in the file's metadata; the number is the format's version."""


class StateError(ValueError):
    """State that cannot be saved, or bytes that are none."""


def encode_state(state: Mapping[str, Any]) -> bytes:
    """The state as bytes. Raises StateError that says where something is that cannot be saved."""
    tensors: dict[str, Tensor] = {}
    document = _packed(state, tensors, "state")
    try:
        return packed_tensors(tensors, {KEY: json.dumps(document, allow_nan=False)})
    except (SafetensorError, KeyError, ValueError) as error:
        raise StateError(f"state cannot be saved: {error}") from error


def packed_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Tensors as a safetensors file, each copied once: its own writer holds a large model three times over.

    Layout: length of the JSON (u64, little endian), the JSON, padded to 8, the tensors, wider types first. Raises
    SafetensorError, KeyError.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    pieces, at = [], 0
    for name in order:
        plain = tensors[name].detach().cpu().resolve_neg().contiguous()
        size = plain.numel() * plain.element_size()
        header[name] = {"dtype": TYPES[plain.dtype], "shape": list(plain.shape), "data_offsets": [at, at + size]}
        pieces.append(plain.reshape(-1).view(torch.uint8).numpy().data if size else b"")
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *pieces])


def decode_state(raw: bytes) -> dict[str, Any]:
    """The inverse of `encode_state`. Raises StateError for bytes that are no state."""
    try:
        document = json.loads(_metadata(raw)[KEY])
        state = _unpacked(document, safetensors.torch.load(raw))
    except (SafetensorError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise StateError(f"not a saved state ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise StateError("not a saved state (no table)")
    return state


def is_state(raw: bytes) -> bool:
    """Are these bytes of `encode_state`, of this version?"""
    try:
        return KEY in _metadata(raw)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        return False


def _metadata(raw: bytes) -> dict[str, str]:
    """safetensors' own reader of bytes leaves the metadata out. Layout: length (u64, little endian), JSON, tensors."""
    size = int.from_bytes(raw[:8], "little")
    metadata = json.loads(raw[8 : 8 + size])["__metadata__"]
    if not isinstance(metadata, dict):
        raise ValueError("no metadata")
    return metadata


# --- one way -------------------------------------------------------------------------------------------------------


def _packed(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, Tensor):
        return _packed_tensor(value, tensors, where)
    if isinstance(value, complex):
        return {"$complex": [_packed(part, tensors, where) for part in (value.real, value.imag)]}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    return _packed_many(value, tensors, where)


def _packed_many(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    if isinstance(value, Mapping):
        pairs = [(key, _packed(inner, tensors, f"{where}.{key}")) for key, inner in value.items()]
        if type(value) is not Counter and all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        kind = "$counter" if isinstance(value, Counter) else "$dict"
        return {kind: [[_packed(key, tensors, where), inner] for key, inner in pairs]}
    for many, tag in _MANY:
        if isinstance(value, many):
            parts = [_packed(each, tensors, f"{where}.{index}") for index, each in enumerate(value)]
            return {tag: parts} if tag else parts
    raise StateError(f"{where} is {type(value).__name__}, which cannot be saved: keep numbers, texts and tensors there")


def _packed_tensor(value: Tensor, tensors: dict[str, Tensor], where: str) -> dict[str, Any]:
    if value.layout is not torch.strided or value.is_quantized:
        raise StateError(f"{where} is a tensor of layout {value.layout}, which cannot be saved")
    name, plain = str(len(tensors)), value.detach().cpu()
    if plain.is_complex():
        tensors[name] = torch.view_as_real(plain.resolve_conj())
        return {"$tensor": name, "complex": True}
    tensors[name] = plain
    return {"$tensor": name}


_MANY: tuple[tuple[type[Any], str], ...] = (
    (list, ""),
    (tuple, "$tuple"),
    (set, "$set"),
    (frozenset, "$frozenset"),
    (deque, "$deque"),
)


# --- and back ------------------------------------------------------------------------------------------------------


def _unpacked(document: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(document, list):
        return [_unpacked(each, tensors) for each in document]
    if not isinstance(document, dict):
        return document
    tag = next(iter(document), "")
    if not tag.startswith("$"):
        return {key: _unpacked(inner, tensors) for key, inner in document.items()}
    if tag == "$tensor":
        tensor = tensors[document[tag]]
        return torch.view_as_complex(tensor) if document.get("complex") else tensor
    if tag == "$float":
        return float(document[tag])
    if tag == "$bytes":
        return base64.b64decode(document[tag])
    return _KINDS[tag](_unpacked(document[tag], tensors))


_KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "$complex": lambda parts: complex(*parts),
    "$dict": dict,
    "$counter": lambda pairs: Counter(dict(pairs)),
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$deque": deque,
}
