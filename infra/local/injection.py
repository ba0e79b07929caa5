"""How long an emulated worker takes: a delay matrix, made longer by load and shorter by the time scale.

Pure: no clock and no waiting here; `invocation.py` owns the timer. Faults are in `faults.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
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
    """seconds, at load `base_load`; one row for each round, one column for each worker; inf: that call fails"""
    found_s: tuple[tuple[float, ...], ...] = ()
    """the same shape: seconds until a call that fails does so; inf, or nothing given: at the function's timeout"""
    slope_s: float = 0.0
    """seconds for each unit of load; load 1 is a whole batch"""
    base_load: float = 0.0
    """the load at which the matrix was measured"""
    time_scale: float = 1.0
    """real seconds for each emulated second; below 1 runs faster than life"""
    seed: int = 0
    """draws the column that a repeated attempt gets"""
    scales: bool = False
    """true: delays are in proportion to the load (delays_s * load / base_load), and the slope does not matter"""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.delays_s}
        if len(widths) > 1 or 0 in widths:
            raise EmulatorError(f"delays_s must be a matrix with one column or more; its rows have widths {widths}")
        if not all(delay >= 0 for row in (*self.delays_s, *self.found_s) for delay in row):
            raise EmulatorError("delays_s and found_s must be numbers that are not negative")
        if self.found_s and [len(row) for row in self.found_s] != [len(row) for row in self.delays_s]:
            raise EmulatorError("found_s must have the shape of delays_s")
        if self.scales and not self.base_load > 0:
            raise EmulatorError("delays in proportion to the load need base_load, the load that they were measured at")
        if not (math.isfinite(self.time_scale) and self.time_scale > 0):
            raise EmulatorError(f"time_scale must be above 0, got {self.time_scale}")

    @classmethod
    def of(
        cls,
        delays_s: Sequence[Sequence[float]],
        *,
        found_s: Sequence[Sequence[float]] = (),
        slope_s: float = 0.0,
        base_load: float = 0.0,
        time_scale: float = 1.0,
        seed: int = 0,
        scales: bool = False,
    ) -> Self:
        """A plan from any matrix, numpy's too: delays_s and found_s (rounds, workers) in seconds."""
        return cls(_rows(delays_s), _rows(found_s), slope_s, base_load, time_scale, seed, scales)

    def to_json(self) -> dict[str, Any]:
        """Its fields, for `from_json` in another process; the matrix, which may be large, is not copied."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The plan that `to_json` and JSON made of one."""
        return cls(**{**fields, **{name: _rows(fields.get(name, ())) for name in ("delays_s", "found_s")}})

    def delay_s(self, round: int, worker: int, attempt: int, load: float) -> float:
        """Real seconds from acceptance to the earliest answer; 0 when nothing is injected, inf when the call fails.

        A repeated attempt (2, 3, ...) gets the delay of another worker, drawn by `seed`: on Lambda it lands elsewhere.
        """
        if not self.delays_s:
            return 0.0
        row = self.delays_s[round % len(self.delays_s)]
        column = self._column(round, worker, attempt)
        if self.scales:
            return row[column] * load / self.base_load * self.time_scale
        return max(0.0, row[column] + self.slope_s * (load - self.base_load)) * self.time_scale

    def fails_s(self, round: int, worker: int, attempt: int, timeout_s: float) -> float | None:
        """Real seconds from acceptance until the call fails, the function's timeout (of emulated seconds) at most.

        None: it does not fail.
        """
        place = round % len(self.delays_s) if self.delays_s else 0
        if not self.delays_s or math.isfinite(self.delays_s[place][self._column(round, worker, attempt)]):
            return None
        stated_s = self.found_s[place][self._column(round, worker, attempt)] if self.found_s else math.inf
        return min(stated_s, timeout_s) * self.time_scale

    def _column(self, round: int, worker: int, attempt: int) -> int:
        width = len(self.delays_s[round % len(self.delays_s)])
        column = worker % width
        if attempt > 1 and width > 1:
            others = width - 1
            column = (column + 1 + int(uniform(self.seed, "column", round, worker, attempt) * others)) % width
        return column


def _rows(matrix: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(each) for each in row) for row in matrix)


NO_DELAYS = DelayPlan()
