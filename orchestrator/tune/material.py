"""A measured profile made ready for tuning: failures replaced, the load model settled, and what to warn of.

Read next: `search.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.delays.doubts import FEW_ROUNDS, NO_SLOPE, few_rounds
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate import Chance
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import usual_concurrency
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray
from gradmux.orchestrator.tune.options import TuneOptions


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """What the tuner works with."""

    delays_s: FloatArray
    """(rounds, columns) seconds, all finite"""
    load: LoadModel
    concurrency: int
    """C"""
    chance: Chance
    """columns and groups drawn, shared by all that has the same width"""
    warnings: tuple[str, ...]

    @property
    def columns(self) -> int:
        """Workers of the profile."""
        return int(self.delays_s.shape[1])

    def rows(self, rows: FloatArray) -> Material:
        """The material with these rounds instead."""
        return replace(self, delays_s=rows)


def prepare(profile: DelayProfile, options: TuneOptions) -> Material:
    """The profile as the tuner takes it.

    A failed invocation counts as what the loop makes of it: it is noticed when the round's slowest answer has come,
    and invoked again with another delay of that round.
    """
    warnings = []
    delays_s, failed = profile.delays_s, profile.failed
    alive = np.flatnonzero((~failed).sum(axis=1))
    if alive.size < profile.rounds:
        dead = profile.rounds - alive.size
        warnings.append(f"{dead} of {profile.rounds} rounds hold failed invocations only and are left out")
        delays_s, failed = delays_s[alive], failed[alive]
    if failed.any():
        warnings.append(f"{failed.mean():.1%} of the invocations failed: each counts as one that is invoked again")
        delays_s = _again(delays_s, failed, options.seed)
    slope_s = profile.slope_s if options.slope_s is None else options.slope_s
    if slope_s is None:
        warnings.append(NO_SLOPE)
    if options.by_mu and options.closing.harvest_late and "sr-sgc" in options.schemes:
        warnings.append("under the mu rule sr-sgc is evaluated as if late answers did not count (harvest_late = false)")
    if len(delays_s) < FEW_ROUNDS:
        warnings.append(few_rounds(len(delays_s)))
    load = LoadModel(slope_s or 0.0, profile.reference_load(options.base_load))
    columns = delays_s.shape[1]
    chance = Chance(columns, options.seed)
    return Material(delays_s, load, _concurrency(columns, options), chance, tuple(warnings))


def _again(delays_s: FloatArray, failed: BoolArray, seed: int) -> FloatArray:
    """Failed entries replaced by the round's longest delay plus one drawn from that round."""
    rng = np.random.default_rng(seed)
    settled = delays_s.copy()
    for row, lost in zip(settled, failed, strict=True):
        answered = row[~lost]
        row[lost] = answered.max() + rng.choice(answered, int(lost.sum()))
    return settled


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
