"""What the workers of each round were asked and have answered, and what a decode makes of it: weights x rows.

A row is a task's coefficients over the chunks of the batch; a decode gives the whole gradient iff its weights times the
rows of its results are 1 at every chunk. Here that product is formed from the tasks that were sent, not from what the
scheme says about itself. Pure arithmetic. Read next: `checked.py`, which judges it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np

from gradmux.orchestrator.schemes.scheme import Assignment, FloatArray, Key, Task


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """weights x rows."""

    row: FloatArray
    """(chunks,) how often each chunk counts"""
    noise: float
    """sum of a_i^2 ||B_i||^2 over the results"""

    @property
    def residual(self) -> float:
        """max over chunks of |row - 1|"""
        return float(np.abs(self.row - 1.0).max())

    def missing(self, chunk_sizes: FloatArray) -> float:
        """||row - 1||^2, each chunk counted by its share of the batch: for equal chunks the mean of the squares."""
        return float(chunk_sizes @ (self.row - 1.0) ** 2)


class Rows:
    """The tasks of rounds that still matter, and which of them were answered."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks
        self._asked: dict[int, Assignment] = {}
        self.answered: defaultdict[int, set[Key]] = defaultdict(set)
        """round -> its results that have come"""
        self.latest = -1
        """the round that was assigned last"""

    def assigned(self, t: int, assignment: Assignment) -> None:
        """Round t goes out with these tasks."""
        self._asked[t], self.latest = assignment, t

    def asked(self, t: int) -> Assignment | None:
        """The tasks of a round that still matters."""
        return self._asked.get(t)

    def task(self, key: Key) -> Task | None:
        """What was asked, answered or not; None: nothing, as far as is known."""
        slots = self._asked.get(key.round, {}).get(key.worker, ())
        return slots[key.slot] if 0 <= key.slot < len(slots) else None

    def has(self, key: Key) -> bool:
        """Has it been answered?"""
        return key in self.answered.get(key.round, ()) and self.task(key) is not None

    def tasks(self, keys: Set[Key]) -> list[Task]:
        """What these results answer. Raises: KeyError for one that has not come."""
        asked = self._asked
        left = set(keys)
        for answered in self.answered.values():
            left = left - answered
        if left:
            raise KeyError("one of these has not come")
        found = [asked[t][worker][slot] for t, worker, slot in keys]
        if not all(found):  # a task is true, and None is not; to compare each with None would take longer
            raise KeyError("one of these is no task")
        return cast(list[Task], found)

    def product(self, weights: Mapping[Key, float]) -> Product:
        """weights x rows. Raises: KeyError for a result that has not come."""
        return self.product_of(self.tasks(weights.keys()), weights)

    def product_of(self, tasks: Sequence[Task], weights: Mapping[Key, float]) -> Product:
        """The same, where the tasks of the results are at hand."""
        lengths = [len(task.chunks) for task in tasks]
        chunks = np.fromiter(chain.from_iterable([task.chunks for task in tasks]), dtype=np.intp, count=sum(lengths))
        rows = np.fromiter(chain.from_iterable([task.coefficients for task in tasks]), np.float64, count=chunks.size)
        scaled = np.repeat(np.fromiter(weights.values(), np.float64, count=len(tasks)), lengths) * rows
        row: FloatArray = np.bincount(chunks, weights=scaled, minlength=self._chunks).astype(np.float64, copy=False)
        return Product(row, float(scaled @ scaled))

    def keep(self, rounds: Iterable[int]) -> None:
        """Forgets all rounds but these and those to come."""
        kept = set(rounds)
        for t in [t for t in self._asked if t not in kept]:
            del self._asked[t]
        for t in [t for t in self.answered if t not in self._asked]:  # those of answers that came too late, as well
            del self.answered[t]

    def rounds(self) -> list[int]:
        """Those that are remembered."""
        return list(self._asked)

    def of_chunk(self, chunk: int, weights: Mapping[Key, float]) -> list[Key]:
        """The results of a decode that count a chunk."""
        pairs = zip(weights, self.tasks(weights.keys()), strict=True)
        return [key for key, task in pairs if weights[key] and chunk in task.chunks]


def amplification(product: Product, results: int, workers: int) -> float:
    """sqrt(sum a_i^2 ||B_i||^2 / n); over the results instead where a worker has several."""
    return math.sqrt(product.noise / max(workers, results, 1))
