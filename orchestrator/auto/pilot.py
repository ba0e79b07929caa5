"""Goes through a run under auto: measures, chooses, and looks again.

A run is a sequence of segments. Two short ones are uncoded and measure: on n workers, and on a quarter of them, which
tells what a larger load costs. What is chosen then plays on; every few steps the newest delays are looked at, since
they may have drifted. Only when another scheme suits them better does the segment end: as soon as all models have done
the same step and nothing is in flight, so that no job is lost and no answer is taken for another.

Pure: no clock, no fleet, no files. Read next: `decide.py`; `simulated.py` and `runs/train.py` play the segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gradmux.orchestrator.auto.choice import AutoJob, Choice, plain, side_by_side
from gradmux.orchestrator.auto.decide import Key, Situation, decide, worth_of_job
from gradmux.orchestrator.auto.measured import measured, seconds_a_job, usd_a_job
from gradmux.orchestrator.auto.pace import Pace
from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.delays.load_fit import fit_load
from gradmux.orchestrator.record import Header, Line

PROBE_ROUNDS, SMALL_ROUNDS = 8, 4
"""rounds of the two measuring segments, at least"""
SMALL_SHARE = 4
"""the second one has n / 4 workers"""
PARTS = 6
"""of a run, after each of which the delays are looked at"""
FEWEST_STEPS, MOST_STEPS = 5, 25
"""between two looks"""


@dataclass(frozen=True, slots=True)
class Segment:
    """What to play next: until every model has done `end` steps."""

    choice: Choice
    end: int
    measures: bool = False
    """is it there to measure, before anything is chosen?"""


@dataclass(slots=True)
class Pilot:
    """`next_segment`; while it is played `watch`, where it may be ended early; when it is over `learn`."""

    job: AutoJob
    probes: list[DelayProfile] = field(default_factory=list)
    """what was measured uncoded, before the first choice"""
    choice: Choice | None = None
    """under which the current segment is played, once one was chosen"""
    given_up: set[Key] = field(default_factory=set)
    """choices that turned out slower than uncoded"""
    pace: Pace = field(default_factory=Pace)
    """what a gradient really took"""
    _planned: int = 0
    _decided: Choice | None = None
    _began: int = 0
    """steps of each model that were done when the current segment began"""
    _looked: int = 0
    """rounds of the current segment that have been looked at"""

    def next_segment(self, done: Sequence[int]) -> Segment:
        """The segment after `done` steps of each model; some are not done yet."""
        job = self.job
        if len(set(done)) > 1:  # a former life ended within an overlapping scheme
            return Segment(side_by_side(job.workers, "brings all models to one step"), max(done))
        self._began, self._looked = done[0], 0
        if self._decided is None and self._planned < 2:
            self._planned += 1
            if self._planned == 1:
                return Segment(self._uncoded(job.workers, "measures"), self._end(PROBE_ROUNDS, 2), measures=True)
            if job.workers >= SMALL_SHARE:
                few = self._uncoded(job.workers // SMALL_SHARE, "measures what load costs")
                return Segment(few, self._end(SMALL_ROUNDS, 1), measures=True)
        self.choice = self._decided or plain(job.workers, "too little was measured")
        return Segment(self.choice, job.steps)

    def _uncoded(self, workers: int, reason: str) -> Choice:
        return (side_by_side if self.job.abreast else plain)(workers, reason)

    def _end(self, rounds: int, fewest: int) -> int:
        return min(self.job.steps, self._began + max(fewest, math.ceil(rounds / self.job.models)))

    def learn(self, lines: Sequence[Line]) -> Choice | None:
        """Takes the lines of the segment that is over; the choice for the next one, None while more is to be measured.

        Raises nothing for a segment that tells too little: then things stay as they are.
        """
        if self.choice is not None or not self._planned:
            return None
        newest = measured(lines, self.job.workers, seed=self.job.seed)
        self.probes += [] if newest is None else [newest]
        if self._planned == 1:
            self.pace.worth = worth_of_job(self.job)
            self.pace.uncoded = self._pace(lines)
        wanted = 2 if self.job.workers >= SMALL_SHARE else 1
        if self._planned < wanted:
            return None
        return self._decide(self.probes, plain(self.job.workers), self._left(lines))

    def watch(self, lines: Sequence[Line]) -> Choice | None:
        """Looks at the delays of a chosen scheme when that is due: what it decides then, None when it is not due.

        `lines`: of the current segment until now. When another scheme is decided for than `choice`, the segment should
        end. To be asked between events: mostly there is nothing to do.
        """
        rounds = len(lines) - 1
        due = self.choice is not None and rounds - self._looked >= self.job.models * self._every()
        if self.choice is None or not due or self.pace.settled:
            return None
        left = self._left(lines)
        window, self._looked = [lines[0], *lines[1 + self._looked :]], rounds
        if left < self.job.models * FEWEST_STEPS:
            return None
        took = self._pace(window)
        judged = self.pace.judge(self.choice, took, self._uncoded(self.job.workers, ""))
        if judged is not None:
            self._decided = judged
            return judged
        newest = measured(window, self.job.workers, self._slope_s() or 0.0, self.job.seed)
        return self._decide([] if newest is None else [newest], self.choice, left, took)

    def _decide(self, windows: Sequence[DelayProfile], before: Choice, left: int, took: float | None = None) -> Choice:
        situation = Situation(windows, self._slope_s(), before, left, took, self.given_up)
        chosen = self._decided = decide(self.job, situation)
        uncoded = None if chosen.uncoded_s is None else self._worth(chosen.uncoded_usd, chosen.uncoded_s)
        if took is not None and chosen.key != before.key and uncoded is not None and took > uncoded:
            self.given_up.add(before.key)
        return chosen

    def _pace(self, lines: Sequence[Line]) -> float | None:
        """E of a gradient of these rounds."""
        seconds = seconds_a_job(lines)
        return None if seconds is None else self._worth(usd_a_job(lines, worth_of_job(self.job)), seconds)

    def _worth(self, usd: float | None, seconds: float) -> float:
        return worth_of_job(self.job).value(usd or 0.0, seconds)

    def _every(self) -> int:
        """Steps between two looks."""
        return min(max(FEWEST_STEPS, math.ceil(self.job.steps / PARTS)), MOST_STEPS)

    def _left(self, lines: Sequence[Line]) -> int:
        """Gradients still to come."""
        done = sum(len(line.decoded) for line in lines if not isinstance(line, Header))
        return self.job.models * (self.job.steps - self._began) - done

    def _slope_s(self) -> float | None:
        """Seconds per unit of load, from the probes; None when they had but one load."""
        if len({probe.load for probe in self.probes}) < 2:
            return None
        return max(0.0, fit_load(self.probes).slope_s)


@dataclass(slots=True)
class Watched:
    """A segment while it is played: whether it should end now."""

    pilot: Pilot
    segment: Segment
    record: KeepsLines
    tell: Callable[[Choice], None]
    """called with what is decided, confirmations included"""
    steps: int
    """of the whole run"""
    _over: bool = False

    def over(self) -> bool:
        """To be asked between events."""
        decided = None if self._over else self.pilot.watch(self.record.lines)
        if decided is not None:
            self.tell(decided)
            self._over = decided.key != self.segment.choice.key
        return self._over


class KeepsLines(Protocol):
    """The record of the segment."""

    @property
    def lines(self) -> Sequence[Line]: ...
