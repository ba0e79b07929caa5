"""Between a loop and the fleet of its workers: rounds numbered onward, a shared limit, calls counted beside.

    loop -> OnwardFleet (segments of a life) -> SharedFleet (slots of all processes) -> the fleet that invokes

Knows neither HTTP nor schemes, nor how slots are shared. Put together in `runs/workers.py`. Read next:
`orchestrator/runs/slots.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from gradmux.orchestrator.ports import Arrival, Fleet, Invocation
from gradmux.orchestrator.record import Beside

Sent = TypeVar("Sent")
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
    """`ports.Fleet` over another one, which shares a limit on invocations in flight with those of other processes.

    Calls for which no slot is free wait here, in order, and go out as slots come back; to the loop they are in flight.
    """

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


class OnwardFleet:
    """`ports.Fleet` over another one, which sees round r as round r + `first`.

    A loop counts its rounds from 0. Where one loop follows another in the same life of a run (`auto/pilot.py`), workers
    must not see a round number twice: they name what they put into the store by it.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.first = 0
        """number of the current segment's round 0, as workers see it"""
        self._next = 0

    def begin_segment(self) -> None:
        """The next loop's rounds come after all that were invoked. Nothing must be in flight."""
        self.first = self._next

    def now(self) -> float:
        return self._fleet.now()

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        calls = [replace(call, round=call.round + self.first) for call in invocations]
        self._next = max([self._next, *(call.round + 1 for call in calls)])
        return self._fleet.invoke(calls)

    def next(self, until_s: float | None) -> Arrival | None:
        arrival = self._fleet.next(until_s)
        if arrival is None or self.first == 0:
            return arrival
        return replace(arrival, round=arrival.round - self.first)

    def close(self) -> None:
        self._fleet.close()


class CallsBeside:
    """What was called since it was last asked, and the loop does not see.

    The loop sends only what rounds are made of, but all calls are billed.
    """

    def __init__(self) -> None:
        self._since = Beside()

    def counting(
        self, send: Callable[[Sequence[Sent]], Sequence[Arrival]]
    ) -> Callable[[Sequence[Sent]], Sequence[Arrival]]:
        """The same as `send`, with every call counted that it has answered."""

        def counted(calls: Sequence[Sent]) -> Sequence[Arrival]:
            arrivals = send(calls)
            self._since += Beside(len(arrivals), sum(arrival.billed_s for arrival in arrivals))
            return arrivals

        return counted

    def take(self) -> Beside:
        """Hands it over, and forgets it."""
        since, self._since = self._since, Beside()
        return since
