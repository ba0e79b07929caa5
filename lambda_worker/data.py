"""A data set in object storage -> rows of it, as tensors.

A manifest (`Manifest`, JSON) names the arrays, each one flat row-major object. A small data set is fetched whole, once
per sandbox, to disk; of a larger one only the rows that are asked for are read, neighbouring rows in one request.
Rows always come in fresh, aligned memory, however they were read: alignment can change the last bits of a matrix
product. Knows nothing of models. Read `gradient.py` next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
import orjson
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradmux.lambda_worker.cache import DiskCache
from gradmux.lambda_worker.digests import checked_pieces
from gradmux.lambda_worker.fields import ContractError, Fields
from gradmux.lambda_worker.messages import Rows
from gradmux.lambda_worker.objects import ObjectStore
from gradmux.lambda_worker.structure import INPUT, TARGET, Values, as_tensor, first, gathered, role_of

__all__ = ["ArrayInfo", "DataError", "Dataset", "Manifest", "encode_manifest", "parse_manifest"]

ARRAY_TYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
WHOLE_BYTES = 256 * 2**20
"""Data sets up to this size are fetched whole."""
PIECE_BYTES = 16 * 2**20
"""Of one request when a whole array is fetched: bounds memory."""
GAP_BYTES = 64 * 2**10
"""Reading this much too much is cheaper than another request."""
PARALLEL_READS = 8


class DataError(ValueError):
    """Rows that the data set does not have, or data that contradict their manifest."""


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """One array: an object of rows * prod(shape) elements, little endian, row-major."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Of one row; () for a scalar."""
    key: str
    """S3 key; the content behind a key never changes."""
    bytes: int

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)

    @property
    def wire_type(self) -> np.dtype[np.generic]:
        return np.dtype(self.dtype).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a data set consists of."""

    rows: int
    arrays: tuple[ArrayInfo, ...]

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON: equal manifests are equal bytes."""
    return orjson.dumps(asdict(manifest), option=orjson.OPT_SORT_KEYS)


def parse_manifest(raw: bytes) -> Manifest:
    """The inverse of `encode_manifest`. Raises ContractError, also when sizes contradict each other."""
    try:
        fields = Fields(orjson.loads(raw), "manifest")
    except orjson.JSONDecodeError as error:
        raise ContractError(f"manifest: not JSON ({error})") from error
    rows = fields.integer("rows", minimum=1)
    arrays = tuple(_parse_array(child, rows) for child in fields.children("arrays"))
    fields.done()
    names = [array.name for array in arrays]
    roles = [role_of(name) for name in names]
    if INPUT not in roles or not set(roles) <= {INPUT, TARGET} or len(set(names)) < len(names):
        raise ContractError(f"manifest.arrays: expected differing names of inputs (x, x.NAME) and targets, got {names}")
    return Manifest(rows, arrays)


def _parse_array(fields: Fields, rows: int) -> ArrayInfo:
    shape = fields.items("shape")
    if not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in shape):
        raise fields.wrong("shape", "positive integers", shape)
    array = ArrayInfo(
        name=fields.text("name"),
        dtype=fields.choice("dtype", ARRAY_TYPES),
        shape=tuple(shape),
        key=fields.text("key"),
        bytes=fields.integer("bytes"),
    )
    fields.done()
    if array.bytes != rows * array.row_bytes:
        raise ContractError(f"{fields.where}.bytes: {array.bytes} is not {rows} rows of {array.row_bytes} bytes")
    return array


class Dataset:
    """Rows of one manifest, through a disk cache or by ranges."""

    def __init__(
        self, manifest: Manifest, objects: ObjectStore, cache: DiskCache, whole_bytes: int = WHOLE_BYTES
    ) -> None:
        self.manifest = manifest
        self._objects = objects
        self._cache = cache
        self._whole = manifest.bytes <= min(whole_bytes, cache.limit_bytes)

    def read(self, rows: Rows, dtype: torch.dtype = torch.float32) -> tuple[Values, Values]:
        """(inputs, target) of these rows, each (count, ...), as the arrays' names say (`structure.py`).

        Floating arrays come in `dtype`, integer targets as int64, other arrays as they are. Raises DataError for a row
        that is not there.
        """
        ids = rows.indices()
        if ids.min() < 0 or ids.max() >= self.manifest.rows:
            raise DataError(f"rows {ids.min()} to {ids.max()} of a data set that has {self.manifest.rows}")
        tensors = {array.name: self._tensor(array, rows, ids, dtype) for array in self.manifest.arrays}
        inputs, target = gathered(tensors, INPUT), gathered(tensors, TARGET)
        assert inputs is not None, "checked by parse_manifest"
        return inputs, first(inputs) if target is None else target

    def _tensor(self, array: ArrayInfo, rows: Rows, ids: NDArray[np.int64], dtype: torch.dtype) -> Tensor:
        values = self._from_disk(array, rows, ids)
        if values is None:
            values = self._by_ranges(array, ids)
        return as_tensor(values.astype(array.dtype, copy=False), role_of(array.name), dtype)

    def _from_disk(self, array: ArrayInfo, rows: Rows, ids: NDArray[np.int64]) -> NDArray[np.generic] | None:
        if not self._whole:
            return None
        # get_range has checked the length of every piece, so the file has the manifest's size.
        mapped = self._cache.open(array.key, array.bytes, lambda: checked_pieces(array.key, self._pieces(array)))
        if mapped is None:
            return None
        table = mapped.view(array.wire_type).reshape(self.manifest.rows, *array.shape)
        return _fresh(table[rows.lo : rows.hi] if rows.ids is None else table[ids])

    def _pieces(self, array: ArrayInfo) -> Iterator[bytes]:
        for lo in range(0, array.bytes, PIECE_BYTES):
            yield self._objects.get_range(array.key, lo, min(lo + PIECE_BYTES, array.bytes))

    def _by_ranges(self, array: ArrayInfo, ids: NDArray[np.int64]) -> NDArray[np.generic]:
        distinct, places = np.unique(ids, return_inverse=True)
        runs = list(_runs(distinct, max_gap=max(1, GAP_BYTES // array.row_bytes)))
        size = array.row_bytes
        bodies = self._in_parallel([(array.key, run[0] * size, (run[-1] + 1) * size) for run in runs])
        found = np.empty((len(distinct), *array.shape), dtype=array.wire_type)
        done = 0
        for run, body in zip(runs, bodies, strict=True):
            table = np.frombuffer(body, dtype=array.wire_type).reshape(-1, *array.shape)
            found[done : done + len(run)] = table[run - run[0]]
            done += len(run)
        return _fresh(found[places])

    def _in_parallel(self, ranges: Sequence[tuple[str, int, int]]) -> Iterable[bytes]:
        if len(ranges) == 1:
            return [self._objects.get_range(*ranges[0])]
        with ThreadPoolExecutor(PARALLEL_READS) as pool:
            return list(pool.map(lambda span: self._objects.get_range(*span), ranges))


def _runs(distinct: NDArray[np.int64], max_gap: int) -> Iterator[NDArray[np.int64]]:
    """Sorted row numbers, split where the gap to the next is larger than `max_gap` rows."""
    yield from np.split(distinct, np.flatnonzero(np.diff(distinct) > max_gap) + 1)


def _fresh(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """A copy in memory of its own, aligned by the tensor allocator to 64 bytes."""
    kind = values.dtype.newbyteorder("=")
    memory = torch.empty(values.size * kind.itemsize, dtype=torch.uint8).numpy()
    copy = memory.view(kind).reshape(values.shape)
    copy[...] = values
    return copy
