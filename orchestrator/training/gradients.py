"""Decoding: the sum over results of weight * result, with the same bits whoever answered first.

Addition of floats is not associative, so the order of the sum is fixed: the tree of `lambda_worker/summation.py` over
canonical positions (by chunk, as `Decoding.weights` has them). `combine` adds results that are all there;
`streamed_sums.py` adds them as they arrive, when their weights are known by then, and gives the same bits.

Knows neither torch nor schemes. Shapes: p parameters, k sums. Read next: `streamed_sums.py`, `trainer.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.buffers import NO_BUFFERS
from gradmux.lambda_worker.summation import Scratch, Vector, tree_sum

BLOCK_ELEMENTS = 65_536
"""The tree is played block by block, so that partial sums stay in the cache and memory is read once."""
THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class CodedResult:
    """What one worker sent for one task, or a combination of such: sums over samples, times the coefficients."""

    gradient: Vector
    """(p,)"""
    sums: NDArray[np.float64]
    """(k,) in the order of `contract.SumIndex`, then of metrics and batch-norm statistics"""
    buffers: NDArray[np.float64] = field(default_factory=lambda: NO_BUFFERS)
    """(b,) a 1 and the module's buffers after the batch's first pass, times its coefficient; (0,) without this pass;
    of a combination those of one of its results"""
    spare: bool = False
    """nothing else refers to the gradient's memory: who gets it may write there"""


Term: TypeAlias = tuple[CodedResult, float]
"""A result and its decode weight."""
Kind: TypeAlias = tuple[str, int, int]
"""dtype, p, k"""


def combine(terms: Sequence[Term]) -> CodedResult:
    """The weighted sum of all terms, in the order given; terms of weight 0 are left out.

    Gradients are added in their own dtype (float32: relative error about log2(n) * 6e-8). Raises ValueError for results
    of different length or dtype, or none at all. The answer's memory is its own.
    """
    used = [(result, weight) for result, weight in terms if weight != 0.0]
    check_alike({kind_of(result) for result, _ in used})
    if len(used) == 1 and used[0][1] == 1.0 and used[0][0].spare:
        return used[0][0]
    vectors = [(result.gradient, weight) for result, weight in used]
    total = add_vectors(vectors, np.empty_like(used[0][0].gradient))
    sums = add_sums([(result.sums, weight) for result, weight in used])
    return CodedResult(total, sums, held_buffers(result.buffers for result, _ in used))


def add_vectors(terms: Sequence[tuple[Vector, float] | None], total: Vector) -> Vector:
    """`tree_sum` of long vectors, (p,), written to `total`, which may be one of them: block by block, on all cores."""
    starts = range(0, total.size, BLOCK_ELEMENTS)
    lanes = max(1, min(THREADS, len(starts)))

    def add_lane(lane: int) -> None:
        scratch = Scratch(total.dtype, BLOCK_ELEMENTS)
        for lo in starts[lane::lanes]:
            hi = min(lo + BLOCK_ELEMENTS, total.size)
            block = tree_sum((term and (term[0][lo:hi], term[1]) for term in terms), scratch)
            total[lo:hi] = block
            scratch.give(block)

    others = [_threads().submit(add_lane, lane) for lane in range(1, lanes)]  # numpy adds without the GIL
    add_lane(0)
    for other in others:
        other.result()
    return total


@cache
def _threads() -> ThreadPoolExecutor:
    """Kept, since to start threads takes as long as to add a million numbers."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="adding")


def squared_distance(one: CodedResult, other: CodedResult) -> float:
    """||g - g'||^2 of two coded gradients, in float64."""
    difference = one.gradient.astype(np.float64) - other.gradient
    return float(difference @ difference)


def add_sums(terms: Sequence[tuple[NDArray[np.float64], float]]) -> NDArray[np.float64]:
    """(k,) the weighted sum of the sums that travel with gradients, in the order given."""
    return np.asarray(np.sum([weight * sums for sums, weight in terms], axis=0))


def held_buffers(sections: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """(b,) the section of buffers that a sum keeps, of those of its terms, in order; none where no term holds one.

    All hold the same values, each times its own coefficient, which comes first. So nothing is added: large whole
    numbers would not survive a decode's rounding.
    """
    present = [section for section in sections if section.size]
    sizes = {section.size for section in present}
    if len(sizes) > 1:
        raise ValueError(f"results of one job must be alike, got buffers of {sorted(sizes)} elements")
    return max(present, key=lambda section: abs(float(section[0])), default=NO_BUFFERS)


def kind_of(result: CodedResult) -> Kind:
    return result.gradient.dtype.name, result.gradient.size, result.sums.size


def check_alike(kinds: set[Kind]) -> None:
    if not kinds:
        raise ValueError("nothing to combine: no result has a weight")
    if len(kinds) > 1:
        named = ", ".join(f"{p} {dtype} and {k} sums" for dtype, p, k in sorted(kinds))
        raise ValueError(f"results of one job must be alike, got {named}")
