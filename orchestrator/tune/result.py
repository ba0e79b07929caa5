"""What the tuner found, in the form of `gradmux tune --json`.

Knows no delays. Read next: `tuner.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """How the total time varies over resampled profiles, seconds."""

    mean_s: float
    sd_s: float
    low_s: float
    """5 % of the resamples are below"""
    high_s: float
    """5 % are above"""


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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Searched on one half of the rounds and run on the other, and the other way round.

    The search is over the schemes that came close on the whole profile.
    """

    loss: float
    """mean loss against the best of the half it was run on, as a share of that"""
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
    """uncoded, independent (M uncoded jobs side by side), backup: each with its best n"""
    evaluated: int
    """parameter sets, on the profile itself"""
    elapsed_s: float
    objective: str
    models: int
    concurrency: int
    warnings: tuple[str, ...]
    cross_validation: CrossValidation | None
    """None where there are too few rounds to split"""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "best": self.best.to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
            "pareto": [choice.to_dict() for choice in self.pareto],
            "baselines": {name: None if of is None else of.to_dict() for name, of in self.baselines.items()},
            "evaluated": self.evaluated,
            "elapsed_s": self.elapsed_s,
            "objective": self.objective,
            "models": self.models,
            "concurrency": self.concurrency,
            "warnings": list(self.warnings),
            "cross_validation": None if self.cross_validation is None else asdict(self.cross_validation),
        }
