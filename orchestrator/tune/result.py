"""What the tuner found, in the form of `gradmux tune --json`.

Knows no delays. Read next: `tuner.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gradmux.orchestrator.schemes.scheme import FloatArray

CLEARLY = 0.05
"""points of the front that differ by less are taken for one"""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the total time varies over resampled profiles, seconds."""

    mean_s: float
    sd_s: float
    low_s: float
    """5 % of the resamples are below"""
    high_s: float
    """5 % are above"""
    stops: int = 0
    """resamples on which the run stops, since all attempts of a worker fail; the rest is of the others"""

    @classmethod
    def of(cls, total_s: FloatArray) -> Spread | None:
        """Of these runs (resamples,), inf where one stops; None when there are none, or all stop."""
        ended_s = total_s[np.isfinite(total_s)]
        if not ended_s.size:
            return None
        low_s, high_s = np.quantile(ended_s, (0.05, 0.95))
        return cls(
            float(ended_s.mean()), float(ended_s.std()), float(low_s), float(high_s), total_s.size - ended_s.size
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """One scheme with its parameters, and what it takes on the profile."""

    scheme: str
    params: Mapping[str, Any]
    workers: int
    """n"""
    total_s: float
    load: float
    """largest fraction of a batch that one worker processes in one round"""
    in_flight_max: int
    billed_s: float
    cost_usd: float
    spread: Spread | None = None
    """None where it was not resampled"""
    exact: bool = True
    """False: gradients are estimates, or reuse old ones, so that it changes what is learned"""
    missing: float = 0.0
    """share of a gradient that its decodes lack, ||a^T B - 1||^2 / chunks, on average; 0: nothing"""
    amplification: float = 0.0
    """how much the worst decode amplified rounding, where it was played by the loop; 0: where it was not"""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Searched on one half of the rounds and run on the other, and the other way round.

    The search is over the schemes that came close on the whole profile.
    """

    loss: float | None
    """mean loss against the best of the half it was run on, as a share of that; None: the run stops on one of them"""
    rounds: int
    """in the smaller half"""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The answer, with what it was chosen from."""

    best: Choice
    choices: tuple[Choice, ...]
    """the best of each scheme, best first"""
    pareto: tuple[Choice, ...]
    """nothing tried is faster and cheaper than one of these; fastest first"""
    baselines: Mapping[str, Choice | None]
    """uncoded, independent (M uncoded jobs side by side), backup: each with its best n; map (a model in one call, or a
    few) with its best copies; here (this machine alone), None where it was not measured"""
    advice: tuple[str, ...]
    """where something simpler is the better choice"""
    evaluated: int
    """parameter sets, on the profile itself"""
    elapsed_s: float
    objective: str
    """in one word"""
    hour_usd: float
    """V"""
    models: int
    concurrency: int
    warnings: tuple[str, ...]
    cross_validation: CrossValidation | None
    """None where there are too few rounds to split"""

    @property
    def faster(self) -> Choice | None:
        """The next point of the front that is clearly faster than the best, at a price; None: there is none."""
        found = [each for each in self.pareto if each.total_s < (1 - CLEARLY) * self.best.total_s]
        return max(found, key=lambda each: each.total_s, default=None)

    @property
    def cheaper(self) -> Choice | None:
        """The next that is clearly cheaper, and takes longer."""
        found = [each for each in self.pareto if each.cost_usd < (1 - CLEARLY) * self.best.cost_usd]
        return max(found, key=lambda each: each.cost_usd, default=None)

    def neighbours(self) -> dict[str, dict[str, Any] | None]:
        """What these would save and cost, for JSON."""
        return {
            name: None
            if each is None
            else {
                "choice": each.to_dict(),
                "time_s": each.total_s - self.best.total_s,
                "usd": each.cost_usd - self.best.cost_usd,
            }
            for name, each in (("faster", self.faster), ("cheaper", self.cheaper))
        }

    @property
    def aim(self) -> str:
        """What was to be least, in words."""
        plain = {"time": "time alone", "cost": "the bill alone"}
        return plain.get(self.objective, f"the bill and ${self.hour_usd:g} an hour")

    def told(self) -> list[tuple[str, str]]:
        """The same for people."""
        best, told = self.best, []
        if (fast := self.faster) is not None:
            saved, paid = best.total_s - fast.total_s, fast.cost_usd - best.cost_usd
            told.append(("faster", f"{fast.scheme} on {fast.workers} saves {saved:.2f} s for ${paid:.4f} more"))
        if (cheap := self.cheaper) is not None:
            saved, longer = best.cost_usd - cheap.cost_usd, cheap.total_s - best.total_s
            told.append(("cheaper", f"{cheap.scheme} on {cheap.workers} saves ${saved:.4f} for {longer:.2f} s more"))
        return told

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "best": self.best.to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
            "pareto": [choice.to_dict() for choice in self.pareto],
            "baselines": {name: None if of is None else of.to_dict() for name, of in self.baselines.items()},
            "advice": list(self.advice),
            "neighbours": self.neighbours(),
            "evaluated": self.evaluated,
            "elapsed_s": self.elapsed_s,
            "objective": self.objective,
            "hour_usd": "inf" if math.isinf(self.hour_usd) else self.hour_usd,
            "models": self.models,
            "concurrency": self.concurrency,
            "warnings": list(self.warnings),
            "cross_validation": None if self.cross_validation is None else asdict(self.cross_validation),
        }
