"""Decoding: the sum over results of weight * result, with the same bits whoever answered first.

Addition of floats is not associative, so the order of the sum is fixed: the tree of `lambda_worker/summation.py` over
canonical positions (by chunk, as `Decoding.weights` has them). `combine` adds results that are all there; `Combiner`
adds each as it arrives, when its weight is known by then, and gives the same bits.

Knows neither torch nor schemes. Shapes: p parameters, k sums. Read next: `trainer.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lambda_worker.summation import Scratch, Vector, tree_sum
from orchestrator.schemes.asks import Place

BLOCK_ELEMENTS = 65_536
"""The tree is played block by block, so that partial sums stay in the cache and memory is read once."""
THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class CodedResult:
    """What one worker sent for one task, or a combination of such: sums over samples, times the coefficients."""

    gradient: Vector
    """(p,)"""
    sums: NDArray[np.float64]
    """(k,) in the order of `contract.SumIndex`, then batch-norm statistics"""


Term: TypeAlias = tuple[CodedResult, float]
"""A result and its decode weight."""
_Kind: TypeAlias = tuple[str, int, int]
"""dtype, p, k"""


def combine(terms: Sequence[Term]) -> CodedResult:
    """The weighted sum of all terms, in the order given; terms of weight 0 are left out.

    Gradients are added in their own dtype (float32: relative error about log2(n) * 6e-8). Raises ValueError for results
    of different length or dtype, or none at all. The answer's memory is its own.
    """
    used = [(result, weight) for result, weight in terms if weight != 0.0]
    _check_alike({_kind(result) for result, _ in used})
    total = np.empty_like(used[0][0].gradient)
    starts = range(0, total.size, BLOCK_ELEMENTS)
    lanes = max(1, min(THREADS, len(starts)))

    def add_lane(lane: int) -> None:
        scratch = Scratch(total.dtype, BLOCK_ELEMENTS)
        for lo in starts[lane::lanes]:
            hi = min(lo + BLOCK_ELEMENTS, total.size)
            block = tree_sum(((result.gradient[lo:hi], weight) for result, weight in used), scratch)
            total[lo:hi] = block
            scratch.give(block)

    if lanes == 1:
        add_lane(0)
    else:
        with ThreadPoolExecutor(lanes) as threads:  # numpy adds without the GIL
            list(threads.map(add_lane, range(lanes)))
    return CodedResult(total, add_sums([(result.sums, weight) for result, weight in used]))


def squared_distance(one: CodedResult, other: CodedResult) -> float:
    """||g - g'||^2 of two coded gradients, in float64."""
    difference = one.gradient.astype(np.float64) - other.gradient
    return float(difference @ difference)


class StreamedSums:
    """`ports.Sums`: one `Combiner` for each job that is under way."""

    def __init__(self) -> None:
        self._combiners: dict[int, Combiner] = {}

    def add(self, place: Place, result: CodedResult) -> None:
        if place.job not in self._combiners:
            self._combiners[place.job] = Combiner(place.count)
        self._combiners[place.job].add(place.index, result, 1.0)

    def take(self, job: int) -> CodedResult:
        """An estimate's sum has places that nobody has taken: its tree keeps their room."""
        combiner = self._combiners.pop(job)
        combiner.skip_rest()
        return combiner.total()


class Combiner:
    """The same sum, term by term in any order, with the same bits: position i is the i-th term of `combine`.

    A term waits for its neighbour in the tree. In random order about n/3 vectors wait at worst, and one remains; terms
    in canonical order leave log2(n). A vector of weight 1 is not copied before it is added.
    """

    def __init__(self, positions: int) -> None:
        """`positions` is how many terms there will be, absent ones included."""
        assert positions > 0
        self._positions = positions
        self._open = set(range(positions))
        self._settled: dict[tuple[int, int], _Node | None] = {}
        self._sums: dict[int, NDArray[np.float64]] = {}
        self._kinds: set[_Kind] = set()
        self._free: list[Vector] = []

    @property
    def complete(self) -> bool:
        """Was every position added or skipped?"""
        return not self._open

    def add(self, position: int, result: CodedResult, weight: float) -> None:
        """Adds one term. The result's memory must not change until its neighbour has come."""
        if weight == 0.0:
            self.skip(position)
            return
        self._kinds.add(_kind(result))
        _check_alike(self._kinds)
        self._sums[position] = weight * result.sums
        unit = weight == 1.0
        self._settle(position, _Node(result.gradient if unit else result.gradient * weight, owned=not unit))

    def skip(self, position: int) -> None:
        """Nothing will come at this position."""
        self._settle(position, None)

    def skip_rest(self) -> None:
        """Nothing more will come."""
        for position in sorted(self._open):
            self.skip(position)

    def total(self) -> CodedResult:
        """The sum, once complete. Raises ValueError when every position was skipped."""
        assert self.complete, f"{len(self._open)} of {self._positions} positions are open"
        ((_, root),) = self._settled.items()
        if root is None:
            raise ValueError("nothing to combine: no result has a weight")
        sums = np.sum([self._sums[position] for position in sorted(self._sums)], axis=0)
        return CodedResult(root.array if root.owned else root.array.copy(), sums)

    def _settle(self, position: int, node: _Node | None) -> None:
        """Puts a node in its place and joins it with its neighbour as far up as possible."""
        self._open.remove(position)
        level, index = 0, position
        while (1 << level) < self._positions:
            sibling = (level, index ^ 1)
            beyond = sibling[1] << level >= self._positions
            if not beyond and sibling not in self._settled:
                break
            other = None if beyond else self._settled.pop(sibling)
            node = self._join(node, other) if index % 2 == 0 else self._join(other, node)
            level, index = level + 1, index // 2
        self._settled[level, index] = node

    def _join(self, left: _Node | None, right: _Node | None) -> _Node | None:
        """left + right, in memory of ours; an absent node leaves the other as it is."""
        if left is None or right is None:
            return left or right
        owned = [node.array for node in (left, right) if node.owned]
        out = owned[0] if owned else self._free.pop() if self._free else np.empty_like(left.array)
        self._free.extend(owned[1:])
        return _Node(np.add(left.array, right.array, out=out), owned=True)


@dataclass(frozen=True, slots=True)
class _Node:
    """A partial sum."""

    array: Vector
    owned: bool
    """False for a worker's own vector, which must not be written to."""


def add_sums(terms: Sequence[tuple[NDArray[np.float64], float]]) -> NDArray[np.float64]:
    """(k,) the weighted sum of the sums that travel with gradients, in the order given."""
    return np.asarray(np.sum([weight * sums for sums, weight in terms], axis=0))


def _kind(result: CodedResult) -> _Kind:
    return result.gradient.dtype.name, result.gradient.size, result.sums.size


def _check_alike(kinds: set[_Kind]) -> None:
    if not kinds:
        raise ValueError("nothing to combine: no result has a weight")
    if len(kinds) > 1:
        named = ", ".join(f"{p} {dtype} and {k} sums" for dtype, p, k in sorted(kinds))
        raise ValueError(f"results of one job must be alike, got {named}")
