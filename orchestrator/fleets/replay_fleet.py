"""A fleet that plays a record again: the same arrivals in the same order, at the recorded instants.

With it the loop takes every decision of the recorded run again; a run that wants something else than was recorded has
diverged and is told so. Knows no scheme and no tensors. Read next: `orchestrator/record.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.ports import Arrival, Invocation
from gradmux.orchestrator.record import EndLine, Line, RoundLine


class ReplayDiverged(GradmuxError):
    """The run asked for what the record does not hold: the code or the parameters are not the recorded ones."""


class RecordEnded(GradmuxError):
    """The recorded run had got no further when it was stopped or killed."""


class ReplayFleet:
    """`ports.Fleet` over the lines of a record."""

    def __init__(self, lines: Iterable[Line], *, cut_off: bool = False) -> None:
        """`cut_off`: the run ended before it was done; what would come after its end raises RecordEnded."""
        self._cut_off, self._end_s = cut_off, 0.0
        self._arrivals: deque[Arrival] = deque()
        self._starts: dict[tuple[int, int, int], float] = {}
        self._asked: set[tuple[int, int, int]] = set()
        self._now_s = 0.0
        for line in lines:
            if isinstance(line, RoundLine | EndLine):
                self._end_s = max(self._end_s, line.end_s if isinstance(line, RoundLine) else line.at_s)
                for group in line.sent:
                    self._starts |= {(group.round, w, group.attempt): group.at_s for w in group.workers}
                self._arrivals.extend(item.arrival() for item in line.arrivals)

    def now(self) -> float:
        return self._now_s

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        for call in invocations:
            name = (call.round, call.worker, call.attempt)
            if name not in self._starts:
                if self._is_over:
                    return self._now_s  # sent, but not recorded any more: what was to be done at once may still be
                raise ReplayDiverged(
                    f"round {call.round}, worker {call.worker}, attempt {call.attempt} was never invoked in the record"
                )
            self._asked.add(name)
        last = invocations[-1]
        self._now_s = max(self._now_s, self._starts[(last.round, last.worker, last.attempt)])
        return self._now_s

    def next(self, until_s: float | None) -> Arrival | None:
        if not self._arrivals or (until_s is not None and self._arrivals[0].at_s > until_s):
            if self._is_over and (until_s is None or until_s > self._end_s):
                raise RecordEnded("the record ends here")
            if until_s is not None:
                self._now_s = max(self._now_s, until_s)
            return None
        arrival = self._arrivals.popleft()
        if (arrival.round, arrival.worker, arrival.attempt) not in self._asked:
            raise ReplayDiverged(
                f"the record goes on with an answer of round {arrival.round}, worker {arrival.worker}, attempt "
                f"{arrival.attempt}, which this run has not invoked"
            )
        self._now_s = max(self._now_s, arrival.at_s)
        return arrival

    @property
    def _is_over(self) -> bool:
        return self._cut_off and not self._arrivals

    def close(self) -> None:
        self._arrivals.clear()
