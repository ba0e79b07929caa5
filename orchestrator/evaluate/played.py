"""What a family of schemes hands back for a batch, and how rounds are put behind each other.

Knows no scheme. Read next: `one_round.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import Timeline
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """P columns, R rounds."""

    total_s: FloatArray
    """(P,) from the first dispatch to the last gradient; inf: the run stops, since all attempts of a worker fail"""
    billed_s: FloatArray
    """(P,) of all invocations, late and redundant ones included"""
    invocations: IntArray
    """(P,)"""
    waits: IntArray
    """(P,) rounds whose stragglers at the cut did not conform (mu rule)"""
    durations_s: FloatArray | None = None
    """(R, P) from dispatch to close, 0 where a round was not played; None unless asked for"""
    peak: IntArray | None = None
    """(P,) most invocations in flight at any instant; None unless asked for or limited"""

    def times(self, factor: FloatArray) -> Played:
        """In a life that is so many times (P,) slower."""
        return replace(
            self,
            total_s=self.total_s * factor,
            billed_s=self.billed_s * factor,
            durations_s=None if self.durations_s is None else self.durations_s * factor,
        )

    def with_stops(self) -> Played:
        """The same, with inf for time and bill of runs that stop: what they did until then is not told."""
        stops = ~np.isfinite(self.total_s)
        if not stops.any():
            return self
        return replace(
            self,
            total_s=np.where(stops, np.inf, self.total_s),
            billed_s=np.where(stops, np.inf, self.billed_s),
            durations_s=None if self.durations_s is None else np.where(stops, np.inf, self.durations_s),
        )

    @classmethod
    def gather(cls, parts: Sequence[tuple[IntArray, Played]], size: int) -> Played:
        """One result of `size` columns from those of some columns each."""
        rounds = max((len(part.durations_s) for _, part in parts if part.durations_s is not None), default=0)
        whole = cls(
            total_s=np.zeros(size),
            billed_s=np.zeros(size),
            invocations=np.zeros(size, dtype=np.int64),
            waits=np.zeros(size, dtype=np.int64),
            durations_s=np.zeros((rounds, size)) if rounds else None,
            peak=np.zeros(size, dtype=np.int64) if all(part.peak is not None for _, part in parts) else None,
        )
        for columns, part in parts:
            whole.total_s[columns], whole.billed_s[columns] = part.total_s, part.billed_s
            whole.invocations[columns], whole.waits[columns] = part.invocations, part.waits
            if whole.durations_s is not None and part.durations_s is not None:
                whole.durations_s[: len(part.durations_s), columns] = part.durations_s
            if whole.peak is not None and part.peak is not None:
                whole.peak[columns] = part.peak
        return whole


@dataclass(frozen=True, slots=True, eq=False)
class PlainRounds:
    """Rounds that nothing but their own answers (and the in-flight cap) closes."""

    ready_s: FloatArray
    """(R, P) seconds from the dispatch until the round may close; 0 where it is not played"""
    shift_s: FloatArray
    """(R, P) what the load adds to each delay"""
    rounds: IntArray
    """(P,) rounds that are played"""
    asked: Mapping[int, BoolArray] = field(default_factory=dict)
    """round -> (P, n) which workers are invoked, for the rounds in which not all are"""


def lay_out(plain: PlainRounds, setting: Setting, draws: Draws) -> Timeline:
    """Plays the rounds under concurrency and in-flight cap; `timeline.total_s` is the run's.

    `timeline.again_s` and `again_calls` are to be added to the bill, where calls fail.
    """
    count, columns = plain.ready_s.shape
    everybody = np.ones((1, draws.workers), dtype=np.bool_)
    timeline = Timeline(setting, draws.workers, columns)
    for t in range(count):
        playing = t < plain.rounds
        asked = plain.asked.get(t, everybody) & playing[:, np.newaxis]
        shift_s = plain.shift_s[t]
        timeline.dispatch(draws.delays_s[t] + shift_s[:, np.newaxis], asked, draws.chains(t), shift_s)
        ready_s = timeline.start_s + plain.ready_s[t]
        timeline.close(np.where(plain.rounds == t + 1, ready_s, timeline.capped_s(ready_s)), playing)
    return timeline
