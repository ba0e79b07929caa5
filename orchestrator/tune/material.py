"""A measured profile made ready for tuning: the load model settled, and what to warn of.

Read next: `search.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gradmux.orchestrator.delays import DelayProfile, Failures
from gradmux.orchestrator.delays.doubts import FEW_ROUNDS, NO_SLOPE, failed_share, few_rounds
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate import Chance
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.families import LATE_LEFT_OUT
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import usual_concurrency
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.tune.options import TuneOptions


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """What the tuner works with."""

    delays_s: FloatArray
    """(rounds, columns) seconds; inf where a call fails"""
    load: LoadModel
    concurrency: int
    """C"""
    chance: Chance
    """columns and groups drawn, shared by all that has the same width"""
    warnings: tuple[str, ...]
    failures: Failures = field(default_factory=Failures)
    """when the calls that fail are found"""

    @property
    def answered_s(self) -> FloatArray:
        """(answers,) delays of the calls that do not fail."""
        found: FloatArray = self.delays_s[np.isfinite(self.delays_s)]
        return found

    @property
    def looped(self) -> bool:
        """Is all of it the loop's alone to play?"""
        return self.failing and self.load.scales

    @property
    def failing(self) -> bool:
        """Do calls fail?"""
        return bool(np.isinf(self.delays_s).any())

    @property
    def columns(self) -> int:
        """Workers of the profile."""
        return int(self.delays_s.shape[1])

    def taken(self, rows: IntArray) -> Material:
        """The material of these rounds, in this order; a round may be taken more than once."""
        return replace(self, delays_s=self.delays_s[rows], failures=self.failures.taken(rows))


def prepare(profile: DelayProfile, options: TuneOptions) -> Material:
    """The profile as the tuner takes it: calls that failed count as the loop counts them."""
    warnings = []
    if profile.failed.any():
        warnings.append(failed_share(profile, options.timeout_s))
    slope_s = profile.slope_s if options.slope_s is None else options.slope_s
    if slope_s is None:
        warnings.append(NO_SLOPE)
    if options.by_mu and options.closing.harvest_late:
        warnings += [_without_late(scheme) for scheme in LATE_LEFT_OUT if scheme in options.schemes]
    if profile.rounds < FEW_ROUNDS:
        warnings.append(few_rounds(profile.rounds))
    load = LoadModel.of(profile, options.slope_s, options.base_load)
    allowed, chance = _concurrency(profile.workers, options), Chance(profile.workers, options.seed)
    return Material(profile.delays_s, load, allowed, chance, tuple(warnings), profile.failures(options.timeout_s))


def _without_late(scheme: str) -> str:
    return f"under the mu rule {scheme} is evaluated as if late answers did not count (harvest_late = false)"


def _concurrency(columns: int, options: TuneOptions) -> int:
    """C; checks the n that were asked for against it."""
    concurrency = usual_concurrency(columns) if options.concurrency is None else options.concurrency
    for workers in options.workers or ():
        if workers < 1:
            raise ConfigError(f"workers = {workers}: at least 1 worker is needed")
        if workers > concurrency:
            raise ConfigError(f"workers = {workers} do not fit concurrency = {concurrency}")
        if workers > columns:
            raise ConfigError(f"workers = {workers}: the profile has {columns} only")
    return concurrency
