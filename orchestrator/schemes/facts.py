"""A scheme in numbers, for many parameter sets at once: all that evaluator, tuner and prices have to know of it.

Each scheme's file gives its own `Facts` as `SchemeInfo.facts`, from the functions that its rounds use too, so that no
formula stands twice; tests hold them to the schemes as they are built. Arrays have one value for each parameter set.
Pure. Read next: `multiplexed.py`, whose facts differ from these in everything.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
Whole = TypeVar("Whole", int, IntArray)
FRACTIONAL = "fractional"
"""the code whose load depends on its groups; all others are circulant: n chunks, s + 1 at each worker"""


class Sets(Protocol):
    """Parameter sets of one scheme on equally many workers, a column each."""

    @property
    def workers(self) -> int:
        """n, workers that one round invokes."""
        ...

    @property
    def size(self) -> int:
        """P, columns."""
        ...

    @property
    def code(self) -> str | None:
        """The code of all columns; None where the scheme takes none, and its code is fractional."""
        ...

    def ints(self, name: str) -> IntArray:
        """(P,) one parameter, by its long name."""
        ...


class Facts:
    """Uncoded, T = 0, one task in each round. A scheme overrides what is different with it."""

    even = True
    """do all invocations of a run have the same load, but for passes?"""
    overlapping = False
    """do several jobs share the concurrency, each with its own n workers, so that no round waits for another?"""

    def fits(self, sets: Sets) -> BoolArray:
        """(P,) do the parameters fit together? What `build` refuses does not."""
        tolerance = self.tolerance(sets)
        return np.logical_and(tolerance >= 0, tolerance < sets.workers)

    def tolerance(self, sets: Sets) -> IntArray:
        """(P,) s of the code of each job (or of each coded group)."""
        return np.zeros(sets.size, dtype=np.int64)

    def chunks(self, sets: Sets) -> IntArray:
        """(P,) equal parts of what one codeword encodes."""
        return code_chunks(sets.code, sets.workers, self.tolerance(sets))

    def parts(self, sets: Sets) -> IntArray:
        """(P,) how many chunks a batch is cut into."""
        return self.chunks(sets)

    def task_load(self, sets: Sets) -> FloatArray:
        """(P,) batches, or the fraction of one, that one task is, if a batch can be cut anywhere."""
        return code_load(sets.code, sets.workers, self.tolerance(sets))

    def slots(self, sets: Sets) -> IntArray:
        """(P,) tasks that a worker has in one round at most, each for a job of its own."""
        return np.ones(sets.size, dtype=np.int64)

    def delay(self, sets: Sets) -> IntArray:
        """(P,) T, rounds."""
        return np.zeros(sets.size, dtype=np.int64)


class CodedFacts(Facts):
    """One (n, s) code, whose s is given."""

    def tolerance(self, sets: Sets) -> IntArray:
        """s."""
        return sets.ints("stragglers")


@overload
def group_count(workers: int, tolerance: int) -> int: ...
@overload
def group_count(workers: int | IntArray, tolerance: IntArray) -> IntArray: ...
def group_count(workers: int | IntArray, tolerance: int | IntArray) -> int | IntArray:
    """G, groups of a fractional code: n // (s+1)."""
    return workers // (tolerance + 1)


def code_chunks(code: str | None, workers: int | IntArray, tolerance: IntArray) -> IntArray:
    """(P,) chunks of (n, s) codes; `code`: None is fractional."""
    if code in (None, FRACTIONAL):
        return group_count(workers, tolerance)
    return np.full(tolerance.size, workers)


def code_load(code: str | None, workers: int | IntArray, tolerance: IntArray) -> FloatArray:
    """(P,) fraction of what (n, s) codes encode that one worker processes."""
    if code in (None, FRACTIONAL):
        return 1.0 / group_count(workers, tolerance)
    return (tolerance + 1) / workers
