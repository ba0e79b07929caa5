"""Delays for what learns from them, when a run is longer than its profile. Read next: `find.py`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def dealt(delays_s: FloatArray, rounds: int, seed: int) -> FloatArray:
    """(rounds, columns) the rows again and again, from the second time on with their columns in another order.

    So what learns from the past may use what persists, but cannot learn the rows by heart.
    """
    rng = np.random.default_rng((seed, 2))
    columns = delays_s.shape[1]
    laps = [delays_s if not lap else delays_s[:, rng.permutation(columns)] for lap in range(laps_of(delays_s, rounds))]
    return np.concatenate(laps)[:rounds]


def laps_of(delays_s: FloatArray, rounds: int) -> int:
    """How often the rows are needed."""
    return math.ceil(rounds / len(delays_s))
