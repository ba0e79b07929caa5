"""Fractional repetition: groups of at least s + 1 workers that all compute the same chunk.

Any 0 <= s < n: G = n // (s + 1) groups whose sizes differ by at most one, G chunks, load 1/G. Decodable as soon as
every group has one answer, so it tolerates every set of s stragglers and each larger one that contains no whole group.
Weights are 1: nothing is amplified. Slow workers tend to stay slow, so each job draws its groups anew.
Source: Tandon et al. 2017, section 3.1, which asks that s + 1 divides n; the unequal groups are ours.

By hand, n = 5, s = 1: G = 2 groups, say {0, 3, 4} and {1, 2}; each worker computes its group's half of the batch.
Workers 0, 3 and 2 straggle: 4 and 1 still answer, weights {4: 1, 1: 1}. Knows neither rounds nor schemes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.schemes.codes.code import Combination, Row
from gradmux.orchestrator.schemes.facts import FRACTIONAL, group_count
from gradmux.orchestrator.schemes.scheme import BoolArray


class FractionalCode:
    """An (n, s) fractional repetition code; `redraw=False` keeps worker order, so that s = 0 is the identity."""

    name = FRACTIONAL
    binary = True

    def __init__(self, workers: int, tolerance: int, seed: int = 0, redraw: bool = True) -> None:
        assert 0 <= tolerance < workers
        self.workers, self.tolerance = workers, tolerance
        self.chunks = group_count(workers, tolerance)
        self.load = 1.0 / self.chunks
        self._seed, self._redraw = seed, redraw

    def draw(self, *parts: int) -> FractionalWord:
        """The groups named by `parts`: a permutation seeded by (seed, *parts), cut into G runs."""
        small, larger = divmod(self.workers, self.chunks)
        sizes = [small + (q < larger) for q in range(self.chunks)]
        group = np.empty(self.workers, dtype=np.intp)
        group[self._permutation(parts)] = np.repeat(np.arange(self.chunks), sizes)
        return FractionalWord(group, sizes)

    def _permutation(self, parts: tuple[int, ...]) -> NDArray[np.int64]:
        if not self._redraw:
            return np.arange(self.workers)
        source = np.random.PCG64(np.random.SeedSequence((self._seed, *parts)))
        return np.random.Generator(source).permutation(self.workers)


class FractionalWord:
    """The groups of one job: worker w sends chunk group[w]."""

    def __init__(self, group: NDArray[np.intp], sizes: list[int]) -> None:
        self.workers, self.chunks = len(group), len(sizes)
        self.group: list[int] = group.tolist()
        self._by_group = np.argsort(group, kind="stable")
        self._starts = np.cumsum([0, *sizes[:-1]])

    def row(self, worker: int) -> Row:
        """Its group's chunk, coefficient 1."""
        return (self.group[worker],), (1.0,)

    def covers(self, answered: BoolArray) -> bool:
        """Has every group a member among `answered`?"""
        return bool(np.logical_or.reduceat(answered[self._by_group], self._starts).all())

    def members(self, chunk: int) -> list[int]:
        """The workers of one group, ascending."""
        last = self._starts[chunk + 1] if chunk + 1 < self.chunks else self.workers
        return [int(worker) for worker in self._by_group[self._starts[chunk] : last]]

    def reception(self) -> FractionalReception:
        """A new, empty reception."""
        return FractionalReception(self)


class FractionalReception:
    """Which groups are covered, and by whom first."""

    def __init__(self, word: FractionalWord) -> None:
        self._word = word
        self._first: list[int | None] = [None] * word.chunks
        self.received: BoolArray = np.zeros(word.workers, dtype=np.bool_)
        self.needed = word.chunks

    @property
    def complete(self) -> bool:
        """Is every group covered?"""
        return self.needed == 0

    def add(self, worker: int) -> bool:
        """Takes an answer; only the first of its group is of use."""
        self.received[worker] = True
        group = self._word.group[worker]
        if self._first[group] is not None:
            return False
        self._first[group] = worker
        self.needed -= 1
        return True

    def helpful(self) -> list[int]:
        """The uncovered groups' members: the lowest of each group, then the second of each, and so on."""
        uncovered = [self._word.members(q) for q, first in enumerate(self._first) if first is None]
        ranked = [(rank, worker) for members in uncovered for rank, worker in enumerate(members)]
        return [worker for _, worker in sorted(ranked)]

    def useful(self) -> list[int]:
        """The first answer of each group, by group."""
        return [worker for worker in self._first if worker is not None]

    def place(self, worker: int) -> tuple[int, int] | None:
        """Its group among all groups, when it was the first of them."""
        group = self._word.group[worker]
        return (group, self._word.chunks) if self._first[group] == worker else None

    def decode(self) -> Combination:
        """Weight 1 for the first answer of each group."""
        assert self.complete, f"{self.needed} groups have no answer"
        return self.estimate().checked("fractional")

    def estimate(self) -> Combination:
        """The same over the covered groups: for disjoint chunks that is the least-squares estimate."""
        weights = dict.fromkeys(self.useful(), 1.0)
        total = np.zeros(self._word.chunks)
        for worker, weight in weights.items():
            total[self._word.group[worker]] += weight
        error = np.abs(total - 1.0)
        amplification = math.sqrt(len(weights) / self._word.workers)
        return Combination(weights, float(error.max()), amplification, float(np.mean(error**2)))
