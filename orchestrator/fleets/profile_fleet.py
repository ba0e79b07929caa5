"""A fleet in virtual time: answers come after the delays of a profile, and the clock jumps to them.

Row t mod rows holds the delays of round t, one column per worker; an invocation of load L takes
delay + slope (L - base load), or delay L / base load where delays are in proportion to the load, and sends an early
message when the load until there is done. Knows no tensors: its arrivals carry results only when it is given a function
that computes them. Read next: `orchestrator/delays`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.delays.profile import DelayProfile
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import FloatArray

IntArray: TypeAlias = npt.NDArray[np.int64]
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
    least_slope_s: float = 0.0
    """seconds per unit load that no answer comes before, whatever the delay: the computation, as in the emulator"""
    scales: bool = False
    """true: a delay is in proportion to the load, its tail too, and the slope does not matter"""

    def __post_init__(self) -> None:
        if self.scales and not self.base_load > 0:
            raise ConfigError("delays in proportion to the load need the load that they were measured at: --base-load")

    @classmethod
    def of(
        cls,
        profile: DelayProfile,
        slope_s: float | None = None,
        base_load: float | None = None,
        load: float | None = None,
    ) -> LoadModel:
        """The profile's own, but for what is given; a slope that is given counts instead of proportion."""
        slope = (profile.slope_s or 0.0) if slope_s is None else slope_s
        return cls(slope, profile.reference_load(base_load), load, scales=profile.scales and slope_s is None)

    def answer_s(self, delay_s: float, load: float) -> float:
        """What an invocation of this load takes that draws this delay; negative only where the shift makes it so."""
        taken_s = delay_s * self.factor(load) if self.scales else delay_s + self.shift_s(load)
        return max(taken_s, self.least_slope_s * load) if self.least_slope_s else taken_s

    def factor(self, load: float) -> float:
        """What to multiply a delay by, where delays are in proportion to the load."""
        return (load if self.load is None else self.load) / self.base_load

    def shift_s(self, load: float) -> float:
        """What to add to a delay; may be negative."""
        return ((load if self.load is None else self.load) - self.base_load) * self.slope_s


class DelayTable:
    """Which delay an invocation gets: by round, worker and attempt.

    With fewer workers than the profile has columns, each round draws its own columns without replacement (seeded).
    A second attempt takes another column of the same row (seeded).
    """

    def __init__(
        self,
        delays_s: FloatArray,
        workers: int,
        seed: int = 0,
        first: int = 0,
        failures: Failures | None = None,
    ) -> None:
        """`delays_s`: (rounds, columns) seconds; inf where the invocation failed. `first`: the row of round 0.
        `failures`: when that is found; None: after the usual timeout.

        Raises: ConfigError when the profile has fewer columns than `workers`.
        """
        columns: int = delays_s.shape[1]
        if columns < workers:
            raise ConfigError(f"the profile has {columns} workers, but {workers} are needed: use --workers {columns}")
        self._delays, self._workers, self._seed = delays_s, workers, seed
        self._columns, self._first = columns, first
        self._found_s = (failures or Failures()).instants(delays_s)
        self._cached: tuple[int, IntArray] = (-1, np.arange(workers))

    def delay_s(self, round_index: int, worker: int, attempt: int) -> float:
        """Seconds; inf: this invocation fails."""
        return float(self._delays[self._row(round_index), self.column(round_index, worker, attempt)])

    def found_s(self, round_index: int, worker: int, attempt: int) -> float:
        """Seconds until an invocation that fails is found to have failed."""
        return float(self._found_s[self._row(round_index), self.column(round_index, worker, attempt)])

    def row(self, round_index: int) -> FloatArray:
        """(workers,) seconds: the first attempts of one round."""
        row: FloatArray = self._delays[self._row(round_index), self.columns(round_index)]
        return row

    def columns(self, round_index: int) -> IntArray:
        """(workers,) the column that each worker's first attempt has."""
        if self._workers == self._columns:
            return np.arange(self._workers)
        if self._cached[0] != round_index:
            rng = np.random.default_rng((self._seed, 0, self._first + round_index))
            self._cached = (round_index, rng.choice(self._columns, self._workers, replace=False))
        return self._cached[1]

    def column(self, round_index: int, worker: int, attempt: int) -> int:
        """The column that one invocation has; from the second attempt on it depends on no n."""
        if attempt > 1:
            rng = np.random.default_rng((self._seed, 1, self._first + round_index, worker, attempt))
            again: int = rng.integers(self._columns, dtype=np.int64).item()
            return again
        if self._workers == self._columns:
            return worker
        first: int = self.columns(round_index)[worker].item()
        return first

    def _row(self, round_index: int) -> int:
        return (self._first + round_index) % len(self._delays)


class ProfileFleet:
    """`ports.Fleet` over a `DelayTable`, which says when a failed invocation is found to have failed."""

    def __init__(
        self, table: DelayTable, load: LoadModel, compute: Compute | None = None, start_s: float = 0.0
    ) -> None:
        """`compute`: what an invocation answers, slot -> result (None: skipped), worked out when it is sent.

        `start_s`: what the clock shows at first.
        """
        self._table, self._load, self._compute = table, load, compute
        self._now_s = start_s
        self._queue: list[tuple[float, int, Arrival]] = []
        self._sequence = self._in_flight = 0
        self.busy_s = 0.0
        """integral of invocations in flight over time"""
        self.peak = 0
        """most invocations in flight at any instant"""

    def now(self) -> float:
        return self._now_s

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        for call in invocations:
            self._start(call)
        self.peak = max(self.peak, self._in_flight)
        return self._now_s

    def next(self, until_s: float | None) -> Arrival | None:
        if not self._queue or (until_s is not None and self._queue[0][0] > until_s):
            if until_s is not None:
                self._now_s = max(self._now_s, until_s)
            return None
        at_s, _, arrival = heapq.heappop(self._queue)
        self._now_s = max(self._now_s, at_s)
        self._in_flight -= arrival.final
        return arrival

    def close(self) -> None:
        self._queue.clear()

    def _start(self, call: Invocation) -> None:
        """Queues all messages of one invocation; a failed one gives none but its last, without results."""
        which = call.round, call.worker, call.attempt
        delay_s = self._table.delay_s(*which)
        failed = math.isinf(delay_s)
        taken_s = self._table.found_s(*which) if failed else self._load.answer_s(delay_s, call.load)
        whole = Arrival(
            round=call.round,
            worker=call.worker,
            attempt=call.attempt,
            at_s=self._now_s + taken_s,
            outcome=Outcome.FAILED if failed else Outcome.OK,
            billed_s=taken_s,
            worker_s=taken_s,
            error="failed in the profile" if failed else "",
            epoch=call.epoch,
        )
        self._in_flight += 1
        self.busy_s += taken_s
        if failed:
            self._push(whole)
            return
        answers = {} if self._compute is None else self._compute(call)
        *early, last = _slots_by_message(call)
        for slots, load in zip(early, call.early, strict=True):
            at_s = self._now_s + self._load.answer_s(delay_s, load)
            self._push(_message(replace(whole, at_s=at_s, final=False, billed_s=0.0, worker_s=0.0), slots, answers))
        self._push(_message(whole, last, answers))

    def _push(self, arrival: Arrival) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (arrival.at_s, self._sequence, arrival))


def _slots_by_message(call: Invocation) -> list[tuple[int, ...]]:
    """The slots that each message of the invocation answers, in order; one empty message when it is idle."""
    tasks = [(slot, task) for slot, task in enumerate(call.slots) if task is not None]
    messages = sorted({task.message for _, task in tasks})
    return [tuple(slot for slot, task in tasks if task.message == message) for message in messages] or [()]


def _message(arrival: Arrival, slots: tuple[int, ...], answers: Mapping[int, Any]) -> Arrival:
    """`arrival` as the one that answers these slots."""
    told = {slot: answers[slot] for slot in slots if slot in answers}
    return replace(
        arrival,
        slots=slots,
        results={slot: result for slot, result in told.items() if result is not None},
        skipped=tuple(slot for slot, result in told.items() if result is None),
    )
