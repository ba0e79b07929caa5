"""How long an emulated worker takes: a delay matrix, made longer by load and shorter by the time scale.

Pure: no clock and no waiting here; `invocation.py` owns the timer. Faults are in `faults.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.seeded import uniform


@dataclass(frozen=True, slots=True)
class DelayPlan:
    """The response time that every (round, worker, attempt) pretends to have; an empty matrix injects nothing.

    answer time = max(compute done, accepted + time_scale * (delays_s[round mod rows][worker mod columns]
                                                             + slope_s * (load - base_load)))
    """

    delays_s: tuple[tuple[float, ...], ...] = ()
    """seconds, at load `base_load`; one row for each round, one column for each worker"""
    slope_s: float = 0.0
    """seconds for each unit of load; load 1 is a whole batch"""
    base_load: float = 0.0
    """the load at which the matrix was measured"""
    time_scale: float = 1.0
    """real seconds for each emulated second; below 1 runs faster than life"""
    seed: int = 0
    """draws the column that a repeated attempt gets"""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.delays_s}
        if len(widths) > 1 or 0 in widths:
            raise EmulatorError(f"delays_s must be a matrix with one column or more; its rows have widths {widths}")
        if not all(math.isfinite(delay) and delay >= 0 for row in self.delays_s for delay in row):
            raise EmulatorError("delays_s must be finite and not negative: mark failures as faults, not as delays")
        if not (math.isfinite(self.time_scale) and self.time_scale > 0):
            raise EmulatorError(f"time_scale must be above 0, got {self.time_scale}")

    @classmethod
    def of(
        cls,
        delays_s: Sequence[Sequence[float]],
        *,
        slope_s: float = 0.0,
        base_load: float = 0.0,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> Self:
        """A plan from any matrix, numpy's too: delays_s (rounds, workers) in seconds."""
        rows = tuple(tuple(float(delay) for delay in row) for row in delays_s)
        return cls(rows, slope_s=slope_s, base_load=base_load, time_scale=time_scale, seed=seed)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The plan that `dataclasses.asdict` and JSON made of one."""
        return cls(**{**fields, "delays_s": tuple(tuple(row) for row in fields["delays_s"])})

    def delay_s(self, round: int, worker: int, attempt: int, load: float) -> float:
        """Real seconds from acceptance to the earliest answer; 0 when nothing is injected.

        A repeated attempt (2, 3, ...) gets the delay of another worker, drawn by `seed`: on Lambda it lands elsewhere.
        """
        if not self.delays_s:
            return 0.0
        row = self.delays_s[round % len(self.delays_s)]
        column = worker % len(row)
        if attempt > 1 and len(row) > 1:
            others = len(row) - 1
            column = (column + 1 + int(uniform(self.seed, "column", round, worker, attempt) * others)) % len(row)
        return max(0.0, row[column] + self.slope_s * (load - self.base_load)) * self.time_scale


NO_DELAYS = DelayPlan()
