"""How a data set lies in its shards: the one arithmetic that who writes them and who reads them share.

    rows        0 .............. R | R ............. 2R | ... N     shard = row // R; the last one may be shorter
    a shard     x's rows | 0s | y's rows | 0s | ...                 one object; every array starts at a multiple of 64

An array's rows lie one after the other, row-major and little endian, so any range of them is one ranged read. A shard
is named by the SHA-256 of its bytes. `Manifest` says all of this to a reader. Knows no store. Read `data.py` next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from gradmux.lambda_worker.codec import ContractError
from gradmux.lambda_worker.structure import INPUT, ROLES, role_of

__all__ = ["ARRAY_TYPES", "SHARD_BYTES", "Column", "Layout", "Manifest", "encode_manifest", "parse_manifest"]

ARRAY_TYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
SHARD_BYTES = 32 * 2**20
"""of a shard, about: what a client holds at once, and what a cache keeps or drops"""
ALIGNMENT = 64
FORMAT = "gradmux-data-1"
MAX_ROWS = 2**32
"""Row numbers travel as uint32."""


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a data set."""

    name: str
    """says what it is to a model: `structure.py`"""
    dtype: str
    shape: tuple[int, ...]
    """of one row; () for a scalar"""

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)

    @property
    def wire_type(self) -> np.dtype[np.generic]:
        return np.dtype(self.dtype).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every row of every array lies."""

    rows: int
    shard_rows: int
    """R"""
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, rows: int, columns: Sequence[Column], shard_bytes: int = SHARD_BYTES) -> Layout:
        """With shards of about so many bytes."""
        return cls(rows, max(1, shard_bytes // max(1, sum(each.row_bytes for each in columns))), tuple(columns))

    @property
    def shards(self) -> int:
        return -(-self.rows // self.shard_rows)

    @property
    def row_bytes(self) -> int:
        return sum(column.row_bytes for column in self.columns)

    def bounds(self, shard: int) -> tuple[int, int]:
        """Its rows: [lo, hi)."""
        lo = shard * self.shard_rows
        return lo, min(lo + self.shard_rows, self.rows)

    def offsets(self, shard: int) -> dict[str, int]:
        """Bytes before the first row of each array; and of the whole shard, under ""."""
        lo, hi = self.bounds(shard)
        at, found = 0, {}
        for column in self.columns:
            found[column.name] = at
            at += -(-(hi - lo) * column.row_bytes // ALIGNMENT) * ALIGNMENT
        return {**found, "": at}

    def size(self, shard: int) -> int:
        """Bytes of a shard."""
        return self.offsets(shard)[""]

    @property
    def bytes(self) -> int:
        """Of all shards."""
        if self.shards == 1:
            return self.size(0)
        return self.size(0) * (self.shards - 1) + self.size(self.shards - 1)

    def described(self) -> dict[str, Any]:
        """As JSON."""
        arrays = [{"name": each.name, "dtype": each.dtype, "shape": list(each.shape)} for each in self.columns]
        return {"rows": self.rows, "shard_rows": self.shard_rows, "arrays": arrays}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A data set as workers are told of it."""

    layout: Layout
    digests: tuple[str, ...]
    """SHA-256 of each shard, in hexadecimal"""
    place: str = ""
    """a shard's key is this and its digest"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """what else a reader may want to know: see docs/data.md"""

    def key(self, shard: int) -> str:
        return f"{self.place}{self.digests[shard]}"


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON: equal manifests are equal bytes."""
    document = {
        "format": FORMAT,
        **manifest.layout.described(),
        "place": manifest.place,
        "shards": list(manifest.digests),
        "extra": dict(manifest.extra),
    }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def parse_manifest(raw: bytes) -> Manifest:
    """The inverse of `encode_manifest`. Raises ContractError, also when numbers contradict each other."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ContractError(f"manifest: not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ContractError(f"manifest: expected a data set of format {FORMAT!r}")
    try:
        columns = tuple(_column(each) for each in document["arrays"])
        layout = Layout(_natural(document["rows"]), _natural(document["shard_rows"]), columns)
        digests, place, extra = tuple(map(str, document["shards"])), document["place"], document["extra"]
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"manifest: {type(error).__name__}: {error}") from error
    if not isinstance(place, str) or not isinstance(extra, dict) or len(document) != len(Manifest.__slots__) + 3:
        raise ContractError("manifest: expected format, rows, shard_rows, arrays, place, shards and extra, and no more")
    _require_names([column.name for column in columns])
    if layout.shards != len(digests):
        raise ContractError(f"manifest.shards: {layout.rows} rows make {layout.shards} shards, not {len(digests)}")
    return Manifest(layout, digests, place, extra)


def _column(fields: Mapping[str, Any]) -> Column:
    if set(fields) != {"name", "dtype", "shape"} or fields["dtype"] not in ARRAY_TYPES:
        raise ValueError(f"expected arrays of name, dtype and shape, of types {', '.join(ARRAY_TYPES)}")
    return Column(str(fields["name"]), fields["dtype"], tuple(_natural(side) for side in list(fields["shape"])))


def _natural(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_ROWS:
        raise ValueError(f"expected a number from 1 to 2^32, got {value!r}")
    return value


def _require_names(names: Sequence[str]) -> None:
    roles = {role_of(name) for name in names}
    if INPUT not in roles or not roles <= set(ROLES) or len(set(names)) < len(names):
        raise ContractError(f"manifest.arrays: expected differing names of inputs (x, x.NAME) and targets, got {names}")
