"""A fleet whose rounds are numbered onward from one segment of a run to the next.

A loop counts its rounds from 0. Where one loop follows another in the same life of a run, workers must not see a round
number twice: they name what they put into the store by it. Knows neither HTTP nor schemes. Read next:
`orchestrator/auto/pilot.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradmux.orchestrator.ports import Arrival, Fleet, Invocation


class OnwardFleet:
    """`ports.Fleet` over another one, which sees round r as round r + `first`."""

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
