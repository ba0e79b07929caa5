"""What the sum of an estimate is divided by: a parameter of the schemes that estimate.

The batch's own count keeps an unbiased sum unbiased. The count that was decoded, with the same factors, makes the step
a mean over the rows that came: less noisy, slightly biased, and factors that are equal cancel in it. By hand, 24 rows
in two groups of 12 and one of them in with factor 6/5: 6/5 g_0 / 24, or 6/5 g_0 / (6/5 * 12) = g_0 / 12.
Read next: `approximate.py`.
"""

from __future__ import annotations

import math

import numpy as np

from gradmux.orchestrator.schemes.facts import BoolArray, CodedFacts, IntArray, Sets
from gradmux.orchestrator.schemes.scheme import Parameter, Params

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BATCH, DECODED = "batch", "decoded"
NORMALISE = Parameter(
    "normalise", "normalise", str, BATCH, "the sum of an estimate is divided by this count of rows", (BATCH, DECODED)
)


def shares_of(workers: int) -> list[int]:
    """Numbers of answers that `gradmux tune` tries: shares of n, down to a half, and never all of them."""
    return sorted({max(1, min(math.ceil(share * workers), workers - 1)) for share in SHARES})


def self_normalised(params: Params) -> bool:
    """Is it to be divided by what was decoded?"""
    return params["normalise"] == DECODED


class StoppedFacts(CodedFacts):
    """An (n, s) code, or none, whose rounds end with the `responses`-th answer at the latest."""

    def __init__(self, *, coded: bool) -> None:
        self._coded = coded

    def fits(self, sets: Sets) -> BoolArray:
        """1 <= responses <= n too."""
        answers = sets.ints("responses")
        return super().fits(sets) & np.logical_and(answers >= 1, answers <= sets.workers)

    def tolerance(self, sets: Sets) -> IntArray:
        """s, without an estimate; 0 without a code."""
        return super().tolerance(sets) if self._coded else np.zeros(sets.size, dtype=np.int64)
