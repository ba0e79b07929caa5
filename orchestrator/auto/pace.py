"""Whether a choice keeps what it promised: its pace, against the one that was measured uncoded.

Pace is E of a gradient, bill and time together. Predictions rest on delays of workers that had little to do. Where
workers share what they compute with, as on an emulator, redundant work makes every answer slower, which no delay has
told before. So a choice that turns out slower than uncoded was gives way to uncoded until that has been measured again:
it may be that everything is slower by now.
Knows no delays. Read next: `pilot.py`, which asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradmux.orchestrator.auto.choice import Choice
from gradmux.orchestrator.schemes.uncoded import INFO as UNCODED
from gradmux.orchestrator.schemes.worth import WORTH, Worth

MARGIN = 0.1
"""a choice that costs up to this share more than uncoded did is not doubted: few rounds were measured"""


@dataclass(slots=True)
class Pace:
    """What a gradient really cost: uncoded, and under the choice that is doubted. Units are those of `worth`."""

    uncoded: float | None = None
    doubted: Choice | None = None
    doubted_pace: float = 0.0
    worth: Worth = WORTH
    settled: bool = False
    """has uncoded turned out the faster one, twice?"""

    def judge(self, choice: Choice, pace: float | None, uncoded: Choice) -> Choice | None:
        """What to go on with after a gradient cost so much under `choice`; None while there is no doubt."""
        if pace is None:
            return None
        if self.doubted is not None:
            return self._compare(pace, uncoded)
        if choice.key == uncoded.key or choice.scheme == UNCODED.name:
            self.uncoded = pace
            return None
        if self.uncoded is None or pace <= (1 + MARGIN) * self.uncoded:
            return None
        self.doubted, self.doubted_pace = choice, pace
        took, plainly = self.worth.told(pace), self.worth.told(self.uncoded)
        told = f"{choice.scheme} took {took} a gradient, uncoded {plainly}: measures uncoded again"
        return replace(uncoded, reason=told)

    def _compare(self, pace: float, uncoded: Choice) -> Choice:
        """The faster one of both."""
        doubted, self.doubted, self.uncoded = self.doubted, None, pace
        assert doubted is not None
        took, other = self.worth.told(pace), self.worth.told(self.doubted_pace)
        told = f"uncoded took {took} a gradient, {doubted.scheme} {other}"
        self.settled = pace <= self.doubted_pace
        return replace(uncoded if self.settled else doubted, reason=told)
