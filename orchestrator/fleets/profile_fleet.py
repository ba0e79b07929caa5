"""A fleet in virtual time: answers come after the delays of a profile, and the clock jumps to them.

Row t mod rows holds the delays of round t, one column per worker; an invocation of load L takes
delay + slope (L - base load). Knows no tensors: its arrivals carry results only when it is given a function that
computes them. Read next: `orchestrator/delays`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from orchestrator.errors import ConfigError
from orchestrator.ports import Arrival, Invocation, Outcome
from orchestrator.schemes.scheme import FloatArray

Compute: TypeAlias = Callable[[Invocation], Mapping[int, Any]]


@dataclass(frozen=True, slots=True)
class LoadModel:
    """How a delay grows with the load of an invocation."""

    slope_s: float = 0.0
    """seconds per unit load (one whole batch)"""
    base_load: float = 0.0
    """load at which the delays were measured"""
    load: float | None = None
    """a fixed load for every invocation, instead of the assigned one"""

    def shift_s(self, load: float) -> float:
        """What to add to a delay; may be negative."""
        return ((load if self.load is None else self.load) - self.base_load) * self.slope_s


class DelayTable:
    """Which delay an invocation gets: by round, worker and attempt.

    With fewer workers than the profile has columns, each round draws its own columns without replacement (seeded).
    A second attempt takes another column of the same row (seeded).
    """

    def __init__(self, delays_s: FloatArray, workers: int, seed: int = 0) -> None:
        """`delays_s`: (rounds, columns) seconds; inf where the invocation failed.

        Raises: ConfigError when the profile has fewer columns than `workers`.
        """
        rows, columns = delays_s.shape
        if columns < workers:
            raise ConfigError(f"the profile has {columns} workers, but {workers} are needed: use --workers {columns}")
        self._delays, self._workers, self._seed = delays_s, workers, seed
        self._rows, self._columns = rows, columns
        self._cached: tuple[int, FloatArray] = (-1, delays_s[0])

    def delay_s(self, round_index: int, worker: int, attempt: int) -> float:
        """Seconds; inf: this invocation fails."""
        if attempt > 1:
            rng = np.random.default_rng((self._seed, 1, round_index, worker, attempt))
            return float(self._delays[round_index % self._rows, rng.integers(self._columns)])
        return float(self.row(round_index)[worker])

    def longest_s(self, round_index: int) -> float:
        """The longest finite delay of the round's row, seconds."""
        row = self._delays[round_index % self._rows]
        return float(row[np.isfinite(row)].max(initial=0.0))

    def row(self, round_index: int) -> FloatArray:
        """(workers,) seconds: the first attempts of one round."""
        if self._cached[0] != round_index:
            row = self._delays[round_index % self._rows]
            if self._workers < self._columns:
                rng = np.random.default_rng((self._seed, 0, round_index))
                row = row[rng.choice(self._columns, self._workers, replace=False)]
            self._cached = (round_index, row)
        return self._cached[1]


class ProfileFleet:
    """`ports.Fleet` over a `DelayTable`. A failed invocation is noticed when the slowest answer of its row has come."""

    def __init__(self, table: DelayTable, load: LoadModel, compute: Compute | None = None) -> None:
        """`compute`: what an invocation answers, slot -> result (None: skipped), worked out when it is sent."""
        self._table, self._load, self._compute = table, load, compute
        self._now_s = 0.0
        self._queue: list[tuple[float, int, Arrival]] = []
        self._sequence = 0
        self.busy_s = 0.0
        """integral of invocations in flight over time"""
        self.peak = 0
        """most invocations in flight at any instant"""

    def now(self) -> float:
        return self._now_s

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        for call in invocations:
            delay = self._table.delay_s(call.round, call.worker, call.attempt) + self._load.shift_s(call.load)
            self._push(call, delay)
        self.peak = max(self.peak, len(self._queue))
        return self._now_s

    def next(self, until_s: float | None) -> Arrival | None:
        if not self._queue or (until_s is not None and self._queue[0][0] > until_s):
            if until_s is not None:
                self._now_s = max(self._now_s, until_s)
            return None
        at_s, _, arrival = heapq.heappop(self._queue)
        self._now_s = max(self._now_s, at_s)
        return arrival

    def close(self) -> None:
        self._queue.clear()

    def _push(self, call: Invocation, delay_s: float) -> None:
        failed = math.isinf(delay_s)
        taken_s = self._table.longest_s(call.round) if failed else delay_s
        slots = () if failed else tuple(slot for slot, task in enumerate(call.slots) if task is not None)
        answers = {} if failed or self._compute is None else self._compute(call)
        arrival = Arrival(
            round=call.round,
            worker=call.worker,
            attempt=call.attempt,
            at_s=self._now_s + taken_s,
            outcome=Outcome.FAILED if failed else Outcome.OK,
            slots=slots,
            results={slot: result for slot, result in answers.items() if result is not None},
            skipped=tuple(slot for slot, result in answers.items() if result is None),
            billed_s=taken_s,
            worker_s=taken_s,
            error="failed in the profile" if failed else "",
            epoch=call.epoch,
        )
        self._sequence += 1
        self.busy_s += taken_s
        heapq.heappush(self._queue, (arrival.at_s, self._sequence, arrival))
