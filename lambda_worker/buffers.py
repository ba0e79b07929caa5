"""One result as bytes: a coded gradient sum and what travels with it, under a header with CRC32.

    offset    bytes  field (little endian)
    0         4      magic b"GMXR"
    4         1      format version, 2
    5         1      gradient dtype: 1 float32, 2 float64, 3 float16
    6         2      zero
    8         4      number of sums, k
    12        4      number of buffer elements, b
    16        8      number of gradient elements, p
    24        8      scale (float64): gradient = scale * stored value; 1 unless float16
    32        4      zero
    36        4      CRC32 of bytes 0..35 and of everything after byte 39
    40        8 k    sums, float64: `SumIndex`, (sum, count) of each metric by name, batch-norm statistics
    40+8k     8 b    buffers, float64: a 1, then the values of the module's buffers after the batch's first pass,
                     all times that pass's coefficient; b = 0, for zeros, when the task has not this pass
    40+8(k+b) ...    gradient, p elements, in the order of `flat.py`

The gradient stands last, so that all parts are aligned and a ranged read of elements [lo, hi) starts at
`gradient_offset(k, b) + lo * itemsize`. Knows nothing of models, JSON or S3. Read `contract.py` next.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from gradmux.lambda_worker.codec import ContractError, VersionError

if TYPE_CHECKING:
    import torch

__all__ = [
    "DTYPES",
    "FIXED_SUMS",
    "HEADER_BYTES",
    "NO_BUFFERS",
    "DecodedResult",
    "NonFiniteResult",
    "ResultHead",
    "SumIndex",
    "decode_result",
    "encode_result",
    "gradient_offset",
    "item_size",
    "pieced_crc",
    "read_elements",
    "result_head",
    "result_size",
]

FORMAT_VERSION = 2
MAGIC = b"GMXR"
HEADER = struct.Struct("<4sBBHIIQdI")
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
    """What the first elements of `sums` hold; each is a sum over the rows of passes, times their coefficient."""

    LOSS = 0
    SAMPLES = 1
    CORRECT = 2
    PREDICTIONS = 3
    """How many predictions were judged; 0 when the model does not classify. Accuracy is CORRECT / PREDICTIONS."""
    COUNT = 4
    """What the loss's mean divides by: rows, elements, or class weights (`losses.py`)."""


FIXED_SUMS = len(SumIndex)


NO_BUFFERS: NDArray[np.float64] = np.empty(0)
"""Of a model whose forward changes none."""
NO_BUFFERS.flags.writeable = False


class DecodedResult(NamedTuple):
    """The parts of one result."""

    gradient: NDArray[Any]
    """(p,) float32 or float64"""
    sums: NDArray[np.float64]
    """(k,)"""
    buffers: NDArray[np.float64]
    """(b,)"""


class ResultHead(NamedTuple):
    """What a reader of ranges must know."""

    sums: tuple[float, ...]
    offset: int
    """of the gradient, bytes"""
    scale: float
    buffers: int
    """elements of the section before the gradient"""
    crc: int
    """CRC32 of all of it but this"""


class NonFiniteResult(ValueError):
    """A NaN or an infinity in a gradient or its sums: that result has failed and must not be combined."""


def encode_result(
    gradient: torch.Tensor | Gradient,
    sums: torch.Tensor | Gradient,
    dtype: str = "float32",
    buffers: torch.Tensor | Gradient = NO_BUFFERS,
) -> bytearray:
    """The bytes of one result.

    `gradient` is (p,) and floating, `sums` (k,), `buffers` (b,); `dtype` is the gradient's on the wire, the others are
    always float64. Raises NonFiniteResult for NaN or infinity, also for one that only the conversion to `dtype` makes.
    """
    flat = as_vector(gradient)
    totals, kept = (np.ascontiguousarray(as_vector(each), dtype="<f8") for each in (sums, buffers))
    if not np.isfinite(totals).all():
        raise NonFiniteResult(f"loss or statistics sums are not finite (loss sum {totals[:1]})")
    if not np.isfinite(kept).all():
        raise NonFiniteResult("a buffer that the forward changes is not finite")
    scale = wire_scale(flat, dtype)
    payload = to_wire(flat, dtype, scale)
    head = HEADER.pack(MAGIC, FORMAT_VERSION, CODES[dtype], 0, totals.size, kept.size, payload.size, scale, 0)
    parts = (totals.data.cast("B"), kept.data.cast("B") if kept.size else b"", payload.data.cast("B"))
    return bytearray().join((head, CHECKSUM.pack(checksum(head, *parts)), *parts))


def decode_result(raw: bytes | bytearray | memoryview) -> DecodedResult:
    """The parts of one result, checked by length and CRC32.

    They are views of `raw` without a copy (writable when `raw` is), except that a float16 gradient becomes a new
    float32 array. Raises ContractError, and VersionError for another format version.
    """
    view = memoryview(raw).cast("B")
    sums_count, buffer_count, count, dtype, scale = read_header(view)
    expected = result_size(count, sums_count, dtype, buffer_count)
    if len(view) != expected:
        raise ContractError(f"result: {len(view)} bytes where its header promises {expected}")
    (stored,) = CHECKSUM.unpack_from(view, HEADER.size)
    if checksum(view[: HEADER.size], view[HEADER_BYTES:]) != stored:
        raise ContractError("result: CRC32 does not match, the bytes were damaged on the way")
    middle, start = gradient_offset(sums_count), gradient_offset(sums_count, buffer_count)
    sums = np.frombuffer(view[HEADER_BYTES:middle], dtype="<f8")
    buffers = np.frombuffer(view[middle:start], dtype="<f8")
    return DecodedResult(read_elements(view[start:], dtype, scale), sums, buffers)


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


def result_size(parameters: int, sums: int, dtype: str, buffers: int = 0) -> int:
    """The size of one result in bytes, header included, before base64."""
    return gradient_offset(sums, buffers) + parameters * item_size(dtype)


def gradient_offset(sums: int, buffers: int = 0) -> int:
    """Where the gradient starts within a result, in bytes."""
    return HEADER_BYTES + 8 * (sums + buffers)


def item_size(dtype: str) -> int:
    """Bytes of one gradient element on the wire."""
    if dtype not in WIRE_TYPES:
        raise ContractError(f"unknown dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    return WIRE_TYPES[dtype].itemsize


def result_head(raw: bytes | bytearray) -> ResultHead:
    """The head of a result, for one whose gradient stays where it is."""
    count, buffers, _, _, scale = read_header(memoryview(raw))
    sums = np.frombuffer(raw[HEADER_BYTES : gradient_offset(count)], dtype="<f8")
    (crc,) = CHECKSUM.unpack_from(raw, HEADER.size)
    return ResultHead(tuple(sums.tolist()), gradient_offset(count, buffers), scale, buffers, crc)


def pieced_crc(dtype: str, scale: float, sums: Gradient, buffers: Gradient, pieces: Iterable[tuple[int, int]]) -> int:
    """The CRC32 in the head of a result whose gradient was read in pieces: (CRC32, bytes) of each, in order.

    For those that have seen no more of it than a piece each, this is how they check all of it.
    """
    crc, size_bytes = 0, 0
    for piece, length in pieces:
        crc, size_bytes = isal_zlib.crc32_combine(crc, piece, length), size_bytes + length
    totals, kept = (np.ascontiguousarray(each, dtype="<f8").tobytes() for each in (sums, buffers))
    count = size_bytes // item_size(dtype)
    head = HEADER.pack(MAGIC, FORMAT_VERSION, CODES[dtype], 0, len(totals) // 8, len(kept) // 8, count, scale, 0)
    return int(isal_zlib.crc32_combine(checksum(head, totals, kept), crc, size_bytes))


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


def read_header(view: memoryview) -> tuple[int, int, int, str, float]:
    """(number of sums, of buffer elements, of gradient elements, dtype, scale)."""
    if len(view) < HEADER_BYTES:
        raise ContractError(f"result: {len(view)} bytes are less than a header of {HEADER_BYTES}")
    magic, version, code, zero, sums, buffers, count, scale, rest = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise ContractError("result: these bytes are no result (wrong magic number)")
    if version != FORMAT_VERSION:
        raise VersionError(f"result: buffer format {version}, this side reads format {FORMAT_VERSION}")
    if not 1 <= code <= len(DTYPES) or zero or rest or not (math.isfinite(scale) and scale > 0):
        raise ContractError("result: damaged header")
    return sums, buffers, count, DTYPES[code - 1], scale


def checksum(*parts: bytes | bytearray | memoryview) -> int:
    """CRC32 as in zlib, at 16 times its speed."""
    crc = 0
    for part in parts:
        crc = isal_zlib.crc32(part, crc)
    return crc
