"""Counts calls that the loop does not see: it sends only what rounds are made of, but all calls are billed.

Knows neither HTTP nor what the calls are for. Used by `runs/train.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gradmux.orchestrator.ports import Arrival
from gradmux.orchestrator.record import Beside

Sent = TypeVar("Sent")


class CallsBeside:
    """What was called since it was last asked."""

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
