"""Shards (`layout.py`) -> any rows of them, by ranged reads: neighbouring rows in one request, megabytes at a time.

Whoever has the shards nearer than in a store may offer them as `tables`. Rows come in fresh memory, aligned to 64
bytes. Workers and clients read with the same code. Knows neither tensors nor caches. Read `data.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gradmux.lambda_worker.layout import Column, Manifest

__all__ = ["PIECE_BYTES", "GetRange", "Ids", "Shards", "Table", "tables_of"]

PIECE_BYTES = 4 * 2**20
"""Of one request: bounds memory."""
GAP_BYTES = 64 * 2**10
"""Reading this much too much is cheaper than another request."""
PARALLEL_READS = 8

Ids: TypeAlias = NDArray[np.int64]
Table: TypeAlias = NDArray[np.generic]
GetRange: TypeAlias = Callable[[str, int, int], bytes]
"""(key, lo, hi) -> bytes [lo, hi) of the object"""
Tables: TypeAlias = Callable[[int], "Mapping[str, Table] | None"]
"""shard -> its arrays, (rows of the shard, ...); None when they have to be read by ranges"""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows of one array in one shard: one request."""

    column: Column
    key: str
    lo: int
    """byte"""
    hi: int
    inside: Ids
    """(count,) which of the rows read are wanted"""
    places: Ids
    """(count,) where each goes"""


class Shards:
    """Rows of one manifest."""

    def __init__(self, manifest: Manifest, get_range: GetRange, tables: Tables = lambda _: None) -> None:
        self.manifest, self.layout = manifest, manifest.layout
        self.waits = 0
        """how often requests were waited for, several at once being one"""
        self._get_range, self._tables = get_range, tables

    def arrays(self, ids: Ids, names: Sequence[str] | None = None) -> dict[str, Table]:
        """(count, ...) of every array, or of those in `names`, for rows that are there, in this order."""
        columns = [each for each in self.layout.columns if names is None or each.name in names]
        found = {column.name: fresh(column, len(ids)) for column in columns}
        runs: list[Run] = []
        shard_of = ids // self.layout.shard_rows
        for shard in np.unique(shard_of).tolist():
            places = np.flatnonzero(shard_of == shard)
            inside = ids[places] - shard * self.layout.shard_rows
            tables = self._tables(shard)
            if tables is None:
                runs += self._runs(shard, columns, inside, places)
                continue
            for column in columns:
                found[column.name][places] = tables[column.name][inside]
        for lo in range(0, len(runs), PARALLEL_READS):
            self._read(runs[lo : lo + PARALLEL_READS], found)
        return found

    def _runs(self, shard: int, columns: Sequence[Column], inside: Ids, places: Ids) -> Iterator[Run]:
        """The requests that these rows of a shard take."""
        order = np.argsort(inside, kind="stable")
        inside, places = inside[order], places[order]
        key, offsets = self.manifest.key(shard), self.layout.offsets(shard)
        for column in columns:
            size, at = column.row_bytes, offsets[column.name]
            for lo, hi in spans(inside, max(1, GAP_BYTES // size), max(1, PIECE_BYTES // size)):
                head, tail = int(inside[lo]), int(inside[hi - 1]) + 1
                yield Run(column, key, at + head * size, at + tail * size, inside[lo:hi] - head, places[lo:hi])

    def _read(self, runs: Sequence[Run], found: Mapping[str, Table]) -> None:
        for run, body in zip(runs, self._bodies(runs), strict=True):
            table = np.frombuffer(body, dtype=run.column.wire_type).reshape(-1, *run.column.shape)
            found[run.column.name][run.places] = table[run.inside]

    def _bodies(self, runs: Sequence[Run]) -> Sequence[bytes]:
        self.waits += 1
        if len(runs) == 1:
            return [self._get_range(runs[0].key, runs[0].lo, runs[0].hi)]
        with ThreadPoolExecutor(PARALLEL_READS) as pool:
            return list(pool.map(lambda run: self._get_range(run.key, run.lo, run.hi), runs))


def spans(inside: Ids, max_gap: int, most: int) -> Iterator[tuple[int, int]]:
    """Sorted row numbers as [lo, hi) of their places: split where the next one is further than `max_gap` rows, and
    where more than `most` rows would be read at once.
    """
    cuts = [0, *(np.flatnonzero(np.diff(inside) > max_gap) + 1).tolist(), len(inside)]
    for lo, end in pairwise(cuts):
        while lo < end:
            hi = lo + int(np.searchsorted(inside[lo:end], inside[lo] + most))
            yield lo, hi
            lo = hi


def fresh(column: Column, rows: int) -> Table:
    """(rows, ...) uninitialised memory of its own, aligned by the tensor allocator to 64 bytes."""
    memory = torch.empty(rows * column.row_bytes, dtype=torch.uint8)
    table: Table = memory.numpy().view(column.dtype).reshape(rows, *column.shape)
    return table


def tables_of(manifest: Manifest, shard: int, raw: NDArray[np.uint8]) -> dict[str, Table]:
    """The arrays of a whole shard, without a copy."""
    layout = manifest.layout
    (lo, hi), offsets = layout.bounds(shard), layout.offsets(shard)
    tables = {}
    for column in layout.columns:
        at, length = offsets[column.name], (hi - lo) * column.row_bytes
        tables[column.name] = raw[at : at + length].view(column.wire_type).reshape(hi - lo, *column.shape)
    return tables
