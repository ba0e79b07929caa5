"""A batch is cut into P passes, and what a scheme calls a chunk is a whole number of them: never a part of one.

So the sizes that a scheme asks for are rounded to multiples of 1/P, and all that rests on them (loads, records, delay
estimates, the simulator) is what is really computed. No chunk is off its fraction by a pass or more; with more chunks
than passes some are empty.

By hand, three equal chunks of P = 8 passes: cuts at 2.67 and 5.33, rounded to 3 and 5, so 3, 2 and 3 passes.
Pure. Read next: `registry.py`, which gives every scheme its sizes.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.schemes.scheme import FloatArray

ROUNDING = 1e-9
"""of a number of passes"""


def chunk_bounds(chunk_sizes: FloatArray, passes: int) -> tuple[int, ...]:
    """(chunks + 1,) where to cut P passes: rounded running sums of the chunks' fractions, from 0 to P."""
    cuts = np.floor(np.cumsum(chunk_sizes) * passes + 0.5 + ROUNDING).astype(int)  # halves up: equal sums, equal cuts
    cuts[-1] = passes
    return (0, *cuts.tolist())


def in_passes(chunk_sizes: FloatArray, passes: int) -> FloatArray:
    """(chunks,) the sizes as multiples of 1/P, sum 1."""
    sizes: FloatArray = np.diff(chunk_bounds(chunk_sizes, passes)) / passes
    return sizes


def most_passes(load: FloatArray, passes: int) -> FloatArray:
    """Such fractions of a batch as whole passes, the larger ones where neighbours differ."""
    rounded: FloatArray = np.ceil(load * passes - ROUNDING) / passes
    return rounded
