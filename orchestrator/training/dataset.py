"""Rows that a job trains on or is judged by, wherever they lie: in memory here, in packed shards elsewhere.

A data set is columns (`Column`: name, type, shape of a row) over some number of rows, and a way to read ranges and
single rows. What the columns are to a model, their names say (`lambda_worker/structure.py`). Knows neither files nor
stores. Read `data.py` next, which makes data sets of what a job may name; `packed.py` for those that lie on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gradmux.lambda_worker.layout import Column
from gradmux.lambda_worker.structure import (
    INPUT,
    SAMPLING,
    TARGET,
    Values,
    gathered,
    named,
    role_of,
)
from gradmux.lambda_worker.transforms import PLAIN, Function, Preparation

if TYPE_CHECKING:
    from gradmux.orchestrator.training.packing import Packed

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]
"""Name -> (rows, ...)"""
Structure: TypeAlias = Array | tuple[Array, ...] | dict[str, Array]

BLOCK_BYTES = 4 << 20
"""of rows that are looked at together, where all are looked at"""
IGNORED_LABEL = -100
"""torch's default `ignore_index`: a label that stands for none"""


@dataclass(frozen=True, slots=True)
class Labels:
    """The least and the largest label of a column of classes, those that stand for none left out."""

    least: int
    least_row: int
    most: int
    most_row: int


class Source(Protocol):
    """Where rows are read from. Safe to read from several threads."""

    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> tuple[Column, ...]: ...
    def read(self, lo: int, hi: int) -> Arrays:
        """Rows lo to hi - 1 of every column."""
        ...

    def take(self, rows: Array) -> Arrays:
        """These rows, in this order."""
        ...

    def labels(self, column: str) -> Labels | None:
        """Of a column of integers; None when all its labels stand for none."""
        ...


class MemorySource:
    """Arrays in memory."""

    def __init__(self, arrays: Arrays) -> None:
        """All of the same length."""
        self.arrays = dict(arrays)

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, each.dtype.name, each.shape[1:]) for name, each in self.arrays.items())

    def read(self, lo: int, hi: int) -> Arrays:
        return {name: each[lo:hi] for name, each in self.arrays.items()}

    def take(self, rows: Array) -> Arrays:
        return {name: each[rows] for name, each in self.arrays.items()}

    def labels(self, column: str) -> Labels | None:
        return labels_of(self.arrays[column], 0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as a model and its loss take them."""

    inputs: Values
    target: Values


class Dataset:
    """Checked rows of types that workers take."""

    def __init__(self, x: Any, y: Any = None, *, source: Source | None = None, told: str = "") -> None:
        """Of arrays, or tuples or dicts of them, in memory; or of a `source` alone. `told`: what was taken from where.

        Arrays are taken as they are: `data.as_dataset` checks them first.
        """
        arrays = {} if source is not None else {**named(x, INPUT), **({} if y is None else named(y, TARGET))}
        self.source: Source = MemorySource(arrays) if source is None else source
        self.told = told
        self.preparation = PLAIN
        self._function: Function | None = None

    @classmethod
    def over(cls, source: Source, told: str = "") -> Dataset:
        """The rows of a source."""
        return cls(None, source=source, told=told)

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.columns

    @property
    def row_bytes(self) -> int:
        return sum(column.row_bytes for column in self.columns)

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def arrays(self) -> Arrays:
        """All rows, in memory."""
        return self.source.read(0, self.rows)

    @property
    def x(self) -> Any:
        """All inputs, in memory: (rows, ...), or a tuple or dict of such."""
        return gathered(self.arrays, INPUT)

    @property
    def y(self) -> Any:
        """All targets, in memory."""
        return gathered(self.arrays, TARGET)

    @cached_property
    def packed(self) -> Packed:
        """The same rows as shards: read once for their digests, if they are not packed yet."""
        from gradmux.orchestrator.training.packing import packed

        return packed(self.source)

    @property
    def digest(self) -> str:
        """SHA-256 of types, shapes and values: equal data sets have equal ones."""
        return self.packed.digest

    def prepared(self, preparation: Preparation, function: Function | None) -> Dataset:
        """The same rows, with what is done to them on their way to a model. `function`: the transform itself."""
        made = Dataset.over(self.source, self.told)
        made.preparation, made._function = preparation, function
        return made

    def batch(self, rows: Array | slice, dtype: torch.dtype = torch.float32, epoch: int = 0) -> Batch:
        """These rows (numbers, or a slice with bounds) as tensors, prepared as in `epoch`; floats in `dtype`."""
        ids = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        found = self.source.read(rows.start, rows.stop) if isinstance(rows, slice) else self.source.take(rows)
        return Batch(*self.preparation.rows(found, ids, epoch, self._function, dtype))

    def sampling(self) -> Array | None:
        """(rows,) in proportion to what rows are drawn; None when each comes once an epoch."""
        if SAMPLING not in {column.name for column in self.columns}:
            return None
        return np.concatenate([block[SAMPLING] for block in self.blocks()]).astype(np.float64)

    def describe(self) -> str:
        """Columns, shapes and types, and what they were taken from."""
        told = ", ".join(told_of(column) for column in self.columns)
        return f"{told} ({self.told})" if self.told else told

    def labels(self) -> list[tuple[int, int]]:
        """(row, label) of the least and the largest class; none where targets are no single column of integers."""
        targets = [column for column in self.columns if role_of(column.name) == TARGET]
        if len(targets) != 1 or not is_labels(targets[0].name, targets[0].dtype):
            return []
        found = self.source.labels(targets[0].name)
        return [] if found is None else list({(found.least_row, found.least): 0, (found.most_row, found.most): 0})

    def blocks(self, size_bytes: int = BLOCK_BYTES) -> Iterator[Arrays]:
        """All rows in order, so many bytes of them at a time."""
        step = max(1, size_bytes // max(1, self.row_bytes))
        for lo in range(0, self.rows, step):
            yield self.source.read(lo, min(lo + step, self.rows))


def is_labels(name: str, dtype: str) -> bool:
    """Whether a column holds classes: an integer target."""
    return role_of(name) == TARGET and dtype.startswith("int")


def told_of(column: Column) -> str:
    """In a word: `x 3 x 32 x 32 uint8`."""
    return " ".join(filter(None, (column.name, " x ".join(map(str, column.shape)), column.dtype)))


def labels_of(array: Array, first_row: int) -> Labels | None:
    """Of some rows of a column, of which the first is number `first_row`."""
    flat = array.reshape(-1)
    places = np.flatnonzero(flat != IGNORED_LABEL)
    if not places.size:
        return None
    width = flat.size // len(array)
    kept = flat[places]
    least, most = int(kept.argmin()), int(kept.argmax())
    row = [first_row + int(places[at]) // width for at in (least, most)]
    return Labels(int(kept[least]), row[0], int(kept[most]), row[1])


def wider(one: Labels | None, other: Labels | None) -> Labels | None:
    """Of both; the earlier row where labels are equal and `one` comes first."""
    if one is None or other is None:
        return one or other
    low = one if one.least <= other.least else other
    high = one if one.most >= other.most else other
    return Labels(low.least, low.least_row, high.most, high.most_row)
