"""A data set in object storage -> rows of it, as tensors.

A manifest (`layout.py`) says where the rows lie in shards. Of a small data set each shard is fetched whole, once per
sandbox, to disk, and its digest compared; of a larger one only the rows that are asked for are read. Rows always come
in fresh, aligned memory, however they were read: alignment can change the last bits of a matrix product. Knows nothing
of models. Read `gradient.py` next.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from gradmux.lambda_worker.cache import DiskCache
from gradmux.lambda_worker.digests import checked_pieces
from gradmux.lambda_worker.layout import Manifest
from gradmux.lambda_worker.messages import Rows
from gradmux.lambda_worker.models import resolve
from gradmux.lambda_worker.objects import ObjectStore
from gradmux.lambda_worker.shards import PIECE_BYTES, Shards, Table, tables_of
from gradmux.lambda_worker.structure import SAMPLING, Values, role_of
from gradmux.lambda_worker.transforms import Function, Preparation, preparation_of

__all__ = ["DataError", "Dataset"]

WHOLE_BYTES = 256 * 2**20
"""Data sets up to this size are fetched whole."""


class DataError(ValueError):
    """Rows that the data set does not have, or data that contradict their manifest."""


class Dataset:
    """Rows of one manifest, through a disk cache or by ranges."""

    def __init__(
        self, manifest: Manifest, objects: ObjectStore, cache: DiskCache, whole_bytes: int | None = None
    ) -> None:
        """`whole_bytes`: up to how many the set is fetched whole; None: WHOLE_BYTES."""
        self.manifest, self.layout = manifest, manifest.layout
        self._objects = objects
        self._cache = cache
        self._whole = self.layout.bytes <= min(WHOLE_BYTES if whole_bytes is None else whole_bytes, cache.limit_bytes)
        self._names = [each.name for each in self.layout.columns if role_of(each.name) != SAMPLING]
        self._shards = Shards(manifest, objects.get_range, self._from_disk)

    def read(self, rows: Rows, dtype: torch.dtype = torch.float32, epoch: int = 0) -> tuple[Values, Values]:
        """(inputs, target) of these rows, each (count, ...), as the arrays' names say (`structure.py`).

        Floating arrays come in `dtype`, integer targets as int64, other arrays as they are, all after what the manifest
        says is to be done to rows; `epoch` seeds it. Raises DataError for a row that is not there, TransformError.
        """
        ids = rows.indices()
        if ids.min() < 0 or ids.max() >= self.layout.rows:
            raise DataError(f"rows {ids.min()} to {ids.max()} of a data set that has {self.layout.rows}")
        arrays = self._shards.arrays(ids, self._names)
        return self._preparation.rows(arrays, ids, epoch, self._function, dtype)

    @property
    def waits(self) -> int:
        """How often reading rows by ranges has waited for storage."""
        return self._shards.waits

    @property
    def fetches(self) -> list[int]:
        """Bytes of each request by which a sandbox fetches the whole set, once; none where it reads by ranges."""
        shards = map(self.layout.size, range(self.layout.shards if self._whole else 0))
        return [min(PIECE_BYTES, size - lo) for size in shards for lo in range(0, size, PIECE_BYTES)]

    def sampling(self) -> NDArray[np.float64] | None:
        """(rows,) in proportion to what rows are drawn; None when each comes once an epoch."""
        if SAMPLING not in {column.name for column in self.layout.columns}:
            return None
        return self._shards.arrays(np.arange(self.layout.rows), [SAMPLING])[SAMPLING].astype(np.float64)

    @cached_property
    def _preparation(self) -> Preparation:
        return preparation_of(self.manifest.extra.get("prepare", {}))

    @cached_property
    def _function(self) -> Function | None:
        code = self._preparation.code
        return None if code is None else resolve(code, "transform")

    def _from_disk(self, shard: int) -> dict[str, Table] | None:
        """The arrays of a shard, mapped; None where shards are not kept."""
        if not self._whole:
            return None
        key, size = self.manifest.key(shard), self.layout.size(shard)
        # Every piece has its length, checked by get_range, so the file has the manifest's size.
        mapped = self._cache.open(key, size, lambda: checked_pieces(key, self._pieces(key, size)))
        return None if mapped is None else tables_of(self.manifest, shard, mapped)

    def _pieces(self, key: str, size: int) -> Iterator[bytes]:
        for lo in range(0, size, PIECE_BYTES):
            yield self._objects.get_range(key, lo, min(lo + PIECE_BYTES, size))
