"""Whether a choice keeps what it promised: its pace, against the one that was measured uncoded.

Predictions rest on delays of workers that had little to do. Where workers share what they compute with, as on an
emulator, redundant work makes every answer slower, which no delay has told before. So a choice that turns out slower
than uncoded was gives way to uncoded until that has been measured again: it may be that everything is slower by now.
Knows no delays. Read next: `pilot.py`, which asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradmux.orchestrator.auto.choice import Choice

MARGIN = 0.1
"""a choice that takes up to this share longer than uncoded did is not doubted: few rounds were measured"""


@dataclass(slots=True)
class Pace:
    """What a gradient really took, seconds: uncoded, and under the choice that is doubted."""

    uncoded_s: float | None = None
    doubted: Choice | None = None
    doubted_s: float = 0.0
    settled: bool = False
    """has uncoded turned out the faster one, twice?"""

    def judge(self, choice: Choice, took_s: float | None, uncoded: Choice) -> Choice | None:
        """What to go on with after a gradient took so long under `choice`; None while there is no doubt."""
        if took_s is None:
            return None
        if self.doubted is not None:
            return self._compare(took_s, uncoded)
        if choice.key == uncoded.key or choice.scheme == "uncoded":
            self.uncoded_s = took_s
            return None
        if self.uncoded_s is None or took_s <= (1 + MARGIN) * self.uncoded_s:
            return None
        self.doubted, self.doubted_s = choice, took_s
        told = f"{choice.scheme} took {took_s:.3f} s a gradient, uncoded {self.uncoded_s:.3f} s: measures uncoded again"
        return replace(uncoded, reason=told)

    def _compare(self, uncoded_s: float, uncoded: Choice) -> Choice:
        """The faster one of both."""
        doubted, self.doubted, self.uncoded_s = self.doubted, None, uncoded_s
        assert doubted is not None
        told = f"uncoded took {uncoded_s:.3f} s a gradient, {doubted.scheme} {self.doubted_s:.3f} s"
        self.settled = uncoded_s <= self.doubted_s
        return replace(uncoded if self.settled else doubted, reason=told)
