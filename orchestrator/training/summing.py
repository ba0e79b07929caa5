"""One sum that is being made in the cloud: which slices are missing, and which of its results are not what they were.

Each slice comes with the CRC32 of what was read of each result. Put together, over all slices, they must give the one
that the result's worker told. Knows no store and invokes nothing. Read next: `cloud_sum.py`, which does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gradmux.lambda_worker.buffers import NO_BUFFERS
from gradmux.lambda_worker.contract import LOST, ContractError, Source, decode_result
from gradmux.lambda_worker.messages import Dtype
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.training.stored import StoredResult

AGAIN = 1000
"""Attempts of calls that are repeated for a sum are numbered from here: the loop may repeat the same call by itself."""
StoredTerm = tuple[StoredResult, float]
Vector = NDArray[np.float32] | NDArray[np.float64]


class Summing:
    """One job's sum."""

    def __init__(self, job: int, terms: Sequence[StoredTerm], edges: Sequence[int], item_bytes: int) -> None:
        """`edges`: where the parameter vector is cut; `item_bytes`: of one element of a result."""
        self.job, self.terms = job, list(terms)
        self.bounds = list(pairwise(edges))
        """[lo, hi) of each slice"""
        self.total: Vector = np.empty(edges[-1], "float64" if item_bytes == 8 else "float32")
        """(p,)"""
        self.buffers: dict[int, NDArray[np.float64]] = {}
        """term -> (b,) the section before its gradient, of those that have one"""
        self._item_bytes = item_bytes
        self._crcs: dict[int, NDArray[np.float64]] = {}
        """slice -> (terms,) CRC32 of what was read of each"""

    @property
    def missing(self) -> list[int]:
        """Slices whose sums have not come."""
        return [part for part in range(len(self.bounds)) if part not in self._crcs]

    def sources(self) -> tuple[Source, ...]:
        """The terms, as workers are told of them."""
        return tuple(Source(result.key, weight, result.offset, result.scale) for result, weight in self.terms)

    def take(self, part: int, body: memoryview) -> None:
        """The sum of one slice has come. Raises ContractError when it is damaged, or another's."""
        gradient, crcs, _ = decode_result(body)
        lo, hi = self.bounds[part]
        if len(gradient) != hi - lo or len(crcs) != len(self.terms) or gradient.dtype != self.total.dtype:
            raise ContractError(f"{len(gradient)} elements of {len(crcs)} results, of type {gradient.dtype}")
        self.total[lo:hi], self._crcs[part] = gradient, crcs.copy()

    def known_lost(self) -> list[int]:
        """Terms that could not be read for some slice that has come."""
        return [index for index in range(len(self.terms)) if any(crcs[index] == LOST for crcs in self._crcs.values())]

    def lost(self, dtype: str) -> list[int]:
        """Terms that are not what was put there, when every slice has come, and `buffers` of those that have them."""
        return [index for index in range(len(self.terms)) if not self._is_intact(index, dtype)]

    def call_again(self, index: int, turn: int) -> Invocation | None:
        """The call whose answer this term was, for this task alone; None: it is not known."""
        result = self.terms[index][0]
        if result.call is None:
            return None
        slots = tuple(task if slot == result.slot else None for slot, task in enumerate(result.call.slots))
        return replace(result.call, slots=slots, attempt=AGAIN + turn, early=())

    def replace(self, index: int, result: StoredResult) -> None:
        """The same result, made once more."""
        self.terms[index] = (result, self.terms[index][1])
        self.buffers.pop(index, None)

    def begin_again(self) -> None:
        """A term has changed: every slice is summed again."""
        self._crcs.clear()

    def _is_intact(self, index: int, dtype: str) -> bool:
        result = self.terms[index][0]
        if result.buffers and index not in self.buffers:
            return False
        crcs = [self._crcs[part][index] for part in range(len(self.bounds))]
        if LOST in crcs:
            return False
        sizes = [self._item_bytes * (hi - lo) for lo, hi in self.bounds]
        pieces = zip(map(int, crcs), sizes, strict=True)
        return result.is_intact(dtype, self.buffers.get(index, NO_BUFFERS), pieces)


def summed_dtype(dtype: str) -> Dtype:
    """What sums of results of this dtype travel in: as they decode, for float16 would round once more."""
    return "float64" if dtype == "float64" else "float32"


def first_line(text: str) -> str:
    """Of a worker's error; a traceback may follow."""
    return text.partition("\n")[0]
