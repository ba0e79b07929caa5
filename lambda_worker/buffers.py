"""One result as bytes: a coded gradient sum and the coded `sums` that travel with it, under a header with CRC32.

    offset  bytes  field (little endian)
    0       4      magic b"GMXR"
    4       1      format version, 1
    5       1      gradient dtype: 1 float32, 2 float64, 3 float16
    6       2      zero
    8       4      number of sums, k
    12      8      number of gradient elements, p
    20      8      scale (float64): gradient = scale * stored value; 1 unless float16
    28      4      CRC32 of bytes 0..27 and of everything after byte 31
    32      8 k    sums, float64: `SumIndex`, then batch-norm statistics
    32+8k   ...    gradient, p elements, in the order of `flat.py`

The sums stand first, so that both parts are aligned and a ranged read of elements [lo, hi) starts at
`gradient_offset(k) + lo * itemsize`. Knows nothing of models, JSON or S3. Read `contract.py` next.
"""

from __future__ import annotations

import math
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from gradmux.lambda_worker.fields import ContractError, VersionError

if TYPE_CHECKING:
    import torch

__all__ = [
    "DTYPES",
    "FIXED_SUMS",
    "HEADER_BYTES",
    "NonFiniteResult",
    "SumIndex",
    "decode_result",
    "encode_result",
    "gradient_offset",
    "item_size",
    "read_elements",
    "result_head",
    "result_size",
]

FORMAT_VERSION = 1
MAGIC = b"GMXR"
HEADER = struct.Struct("<4sBBHIQd")
CHECKSUM = struct.Struct("<I")
HEADER_BYTES = HEADER.size + CHECKSUM.size

DTYPES = ("float32", "float64", "float16")
CODES = {name: code for code, name in enumerate(DTYPES, start=1)}
WIRE_TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "float16": np.dtype("<f2"),
}
SINGLE_MAX = float(np.finfo(np.float32).max)

# float16 is decoded into float32, and rounding to 11 bits must not carry it beyond float32's range.
LARGEST = {"float32": SINGLE_MAX, "float64": float(np.finfo(np.float64).max), "float16": SINGLE_MAX * (1 - 2.0**-11)}

# float16: the largest element is scaled into [2^14, 2^15), just below float16's maximum of 65504, by a power of two,
# so that scaling itself rounds nothing. The exponent is bounded so that the factor is a normal float32.
HALF_EXPONENT = 15
MIN_SCALE_EXPONENT = -120

Gradient = NDArray[Any]


class SumIndex(IntEnum):
    """What the first elements of `sums` hold; each is a sum over samples, times the chunk's coefficient."""

    LOSS = 0
    SAMPLES = 1
    CORRECT = 2
    PREDICTIONS = 3
    """How many predictions were judged; 0 when the model does not classify. Accuracy is CORRECT / PREDICTIONS."""
    COUNT = 4
    """What the loss's mean divides by: rows, elements, or class weights (`losses.py`)."""


FIXED_SUMS = len(SumIndex)


class NonFiniteResult(ValueError):
    """A NaN or an infinity in a gradient or its sums: that result has failed and must not be combined."""


def encode_result(gradient: torch.Tensor | Gradient, sums: torch.Tensor | Gradient, dtype: str = "float32") -> bytes:
    """The bytes of one result.

    `gradient` is (p,) and floating, `sums` (k,); `dtype` is the gradient's on the wire. Sums are always float64.
    Raises NonFiniteResult for NaN or infinity, also for one that only the conversion to `dtype` makes.
    """
    flat, totals = as_vector(gradient), np.ascontiguousarray(as_vector(sums), dtype="<f8")
    if not np.isfinite(totals).all():
        raise NonFiniteResult(f"loss or statistics sums are not finite (loss sum {totals[:1]})")
    scale = wire_scale(flat, dtype)
    payload = to_wire(flat, dtype, scale)
    head = HEADER.pack(MAGIC, FORMAT_VERSION, CODES[dtype], 0, totals.size, payload.size, scale)
    parts = (totals.data.cast("B"), payload.data.cast("B"))
    return b"".join((head, CHECKSUM.pack(checksum(head, *parts)), *parts))


def decode_result(raw: bytes | bytearray | memoryview) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """(gradient (p,), sums (k,)) of one result, checked by length and CRC32.

    The gradient is float32 or float64; it is a view of `raw` without a copy (writable when `raw` is), except that
    float16 becomes a new float32 array. Raises ContractError, and VersionError for another format version.
    """
    view = memoryview(raw).cast("B")
    sums_count, count, dtype, scale = read_header(view)
    expected = result_size(count, sums_count, dtype)
    if len(view) != expected:
        raise ContractError(f"result: {len(view)} bytes where its header promises {expected}")
    (stored,) = CHECKSUM.unpack_from(view, HEADER.size)
    if checksum(view[: HEADER.size], view[HEADER_BYTES:]) != stored:
        raise ContractError("result: CRC32 does not match, the bytes were damaged on the way")
    start = gradient_offset(sums_count)
    sums = np.frombuffer(view[HEADER_BYTES:start], dtype="<f8")
    return read_elements(view[start:], dtype, scale), sums


def read_elements(raw: bytes | bytearray | memoryview, dtype: str, scale: float) -> NDArray[Any]:
    """Gradient elements from their bytes alone, for a ranged read: float32 or float64, `scale` applied."""
    if len(raw) % item_size(dtype):
        raise ContractError(f"gradient: {len(raw)} bytes are no whole number of {dtype} elements")
    if dtype != "float16":
        return np.frombuffer(raw, dtype=WIRE_TYPES[dtype])
    import torch  # 10 times faster than numpy's astype, and needed for float16 alone

    halves = np.frombuffer(raw, dtype="<i2").copy()  # writable, and aligned
    single = torch.from_numpy(halves).view(torch.float16).to(torch.float32).mul_(scale)
    return np.asarray(single.numpy())


def result_size(parameters: int, sums: int, dtype: str) -> int:
    """The size of one result in bytes, header included, before base64."""
    return gradient_offset(sums) + parameters * item_size(dtype)


def gradient_offset(sums: int) -> int:
    """Where the gradient starts within a result, in bytes."""
    return HEADER_BYTES + 8 * sums


def item_size(dtype: str) -> int:
    """Bytes of one gradient element on the wire."""
    if dtype not in WIRE_TYPES:
        raise ContractError(f"unknown dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    return WIRE_TYPES[dtype].itemsize


def result_head(raw: bytes | bytearray) -> tuple[tuple[float, ...], int, float]:
    """(sums, offset of the gradient in bytes, scale) of a result: what a reader of ranges must know."""
    count, _, _, scale = read_header(memoryview(raw))
    start = gradient_offset(count)
    return tuple(np.frombuffer(raw[HEADER_BYTES:start], dtype="<f8").tolist()), start, scale


def wire_scale(flat: Gradient, dtype: str) -> float:
    """The scale for this gradient; 1.0 unless `dtype` is float16. Raises NonFiniteResult where `dtype` fails."""
    item_size(dtype)
    largest = float(max(flat.max(), -flat.min())) if flat.size else 0.0
    if not largest <= LARGEST[dtype]:  # comparisons with NaN are false, so this catches it too
        raise NonFiniteResult(f"gradient holds {largest} as its largest magnitude, which {dtype} cannot carry")
    if dtype != "float16" or largest == 0.0:
        return 1.0
    exponent = math.frexp(largest)[1] - HALF_EXPONENT
    return math.ldexp(1.0, max(exponent, MIN_SCALE_EXPONENT))


def as_vector(values: torch.Tensor | Gradient) -> Gradient:
    """The values as a contiguous numpy vector, without a copy where possible and without importing torch."""
    array = values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
    if array.ndim != 1 or array.dtype.kind != "f":
        raise ContractError(f"result: expected a vector of floats, got {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array)


def to_wire(flat: Gradient, dtype: str, scale: float) -> Gradient:
    if dtype != "float16":
        return np.ascontiguousarray(flat, dtype=WIRE_TYPES[dtype])
    import torch  # see `read_elements`

    scaled = torch.from_numpy(flat * flat.dtype.type(1.0 / scale))
    return np.asarray(scaled.to(torch.float16).view(torch.int16).numpy())


def read_header(view: memoryview) -> tuple[int, int, str, float]:
    """(number of sums, gradient elements, dtype, scale)."""
    if len(view) < HEADER_BYTES:
        raise ContractError(f"result: {len(view)} bytes are less than a header of {HEADER_BYTES}")
    magic, version, code, zero, sums, count, scale = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise ContractError("result: these bytes are no result (wrong magic number)")
    if version != FORMAT_VERSION:
        raise VersionError(f"result: buffer format {version}, this side reads format {FORMAT_VERSION}")
    if not 1 <= code <= len(DTYPES) or zero or not (math.isfinite(scale) and scale > 0):
        raise ContractError("result: damaged header")
    return sums, count, DTYPES[code - 1], scale


def checksum(*parts: bytes | memoryview) -> int:
    """CRC32 as in zlib, at 16 times its speed."""
    crc = 0
    for part in parts:
        crc = isal_zlib.crc32(part, crc)
    return crc
