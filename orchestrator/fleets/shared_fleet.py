"""A fleet that shares a limit on invocations in flight with the fleets of other processes.

Calls for which no slot is free wait here, in order, and go out as slots come back; the loop counts them as in flight.
Knows neither HTTP nor how slots are shared. Read next: `orchestrator/runs/slots.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from gradmux.orchestrator.ports import Arrival, Fleet, Invocation

LOOK_S = 0.1
"""Between two looks for free slots, while calls wait for them."""


Warm = Callable[[Sequence[Invocation]], Sequence[Arrival]]


class SharesSlots(Protocol):
    """What bounds the fleets of all processes together."""

    def take(self, wanted: int) -> int:
        """Takes up to `wanted` slots; how many."""
        ...

    def give_back(self, count: int) -> None: ...


def warm_within(slots: SharesSlots, warm: Warm) -> Warm:
    """The same, for as many of the calls as there are slots free now: the others start their workers when they go."""

    def warm_some(invocations: Sequence[Invocation]) -> Sequence[Arrival]:
        granted = slots.take(len(invocations))
        try:
            return warm(invocations[:granted])
        finally:
            slots.give_back(granted)

    return warm_some


class SharedFleet:
    """`ports.Fleet` over another one."""

    def __init__(self, fleet: Fleet, slots: SharesSlots, look_s: float = LOOK_S) -> None:
        self._fleet, self._slots, self._look_s = fleet, slots, look_s
        self._queue: deque[Invocation] = deque()

    def now(self) -> float:
        return self._fleet.now()

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        start_s = self._fleet.now()
        self._queue.extend(invocations)
        self._send()
        return start_s

    def next(self, until_s: float | None) -> Arrival | None:
        while True:
            waiting = bool(self._queue)
            arrival = self._fleet.next(self._wake_s(until_s))
            if arrival is not None and arrival.final:
                self._slots.give_back(1)
            self._send()
            if arrival is not None or (until_s is None and not waiting):
                return arrival
            if until_s is not None and self._fleet.now() >= until_s:
                return None

    def close(self) -> None:
        self._queue.clear()
        self._fleet.close()

    def _wake_s(self, until_s: float | None) -> float | None:
        if not self._queue:
            return until_s
        look_s = self._fleet.now() + self._look_s
        return look_s if until_s is None else min(look_s, until_s)

    def _send(self) -> None:
        if self._queue:
            granted = self._slots.take(len(self._queue))
            if granted:
                self._fleet.invoke([self._queue.popleft() for _ in range(granted)])
