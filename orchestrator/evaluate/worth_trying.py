"""The parameter sets worth trying of each evaluated scheme on n workers: all that can make a difference, each once.

A code is fractional here, and matters through its number of groups alone when rounds close as early as they may: then
one s stands for all that make the same groups, and one W of SR-SGC for all that give the same s. What fits together,
and T, is said by the schemes' own `Facts`. Knows no delays. Read next: `grids.py`, which bounds loads and parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.facts import FRACTIONAL, group_count
from gradmux.orchestrator.schemes.selective_repeat import tolerance_of

BACKUP_SHARES = (0.75, 0.9, 0.95, 1.0)
BACKUP_SLACKS = (0.5, 1.0, 2.0)
STRETCHES_STEP = 0.25
"""the number of stretches that a model is trained in grows by this share at most"""
LAMBDA_STEP = 0.25
"""of SR-SGC's lambda, the same"""
TOLERANCE = 1e-9
"""of comparing loads"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a choice has to keep to."""

    scheme: str
    workers: int
    """n"""
    max_delay: int
    """T at most, rounds: M - 1"""
    max_load: float
    """as a multiple of 1/n"""
    by_mu: bool = False
    """do rounds close by the papers' rule?"""
    steps: int = 1
    """of each model"""

    def tolerances(self) -> IntArray:
        """The s worth trying: the largest of those that make the same groups; under the mu rule each counts."""
        every = np.arange(min(self.workers, math.floor(self.max_load * (1 + TOLERANCE))))
        return every if self.by_mu else self._coarsest(every)

    def most(self) -> IntArray:
        """The same, whatever the load."""
        every = np.arange(self.workers)
        return every if self.by_mu else self._coarsest(every)

    def _coarsest(self, tolerance: IntArray) -> IntArray:
        return self.workers // np.unique(group_count(self.workers, tolerance))[::-1] - 1


def plain(bounds: Bounds) -> Batch:
    """Nothing to choose."""
    return Batch(bounds.scheme, bounds.workers, {}, 1)


def coded(bounds: Bounds) -> Batch:
    """Every s but 0, which is uncoded."""
    s = bounds.tolerances()
    s = s[s > 0]
    return Batch(bounds.scheme, bounds.workers, {"stragglers": s}, s.size, FRACTIONAL)


def pipelines(bounds: Bounds) -> Batch:
    """Every s."""
    s = bounds.tolerances()
    return Batch(bounds.scheme, bounds.workers, {"per_job": np.full(s.size, bounds.workers), "stragglers": s}, s.size)


def multiplexed(bounds: Bounds) -> Batch:
    """(B, W) within the delay, and every lambda below n."""
    pairs = windows(bounds.scheme, bounds.max_delay, bounds.max_delay + 1)
    return sequential(bounds.scheme, bounds.workers, pairs, bounds.most(), FRACTIONAL)


def without_groups(bounds: Bounds) -> Batch:
    """(B, W) within the delay, with lambda = n: workers are idle in some rounds."""
    pairs = windows(bounds.scheme, bounds.max_delay, bounds.max_delay + 1)
    return sequential(bounds.scheme, bounds.workers, pairs, np.array([bounds.workers]), None)


def repeats(bounds: Bounds) -> Batch:
    """B within the delay, lambda in steps, and the W that gives each s."""
    most, tolerances = np.array(steps(bounds.workers - 1, LAMBDA_STEP)), bounds.tolerances()
    sets = {
        (b, b * (fold - 1) + 1, int(lam))
        for b in range(1, bounds.max_delay + 1)
        for s in tolerances[tolerances > 0].tolist()
        for lam in most[most >= s].tolist()
        for fold in _folds(lam, s)
    }
    burst, window, lam = np.array(sorted(sets), dtype=np.int64).reshape(-1, 3).T
    values = {"burst": burst, "window": window, "max_stragglers": lam}
    return Batch(bounds.scheme, bounds.workers, values, burst.size, FRACTIONAL)


def _folds(most: int, tolerance: int) -> range:
    """The least (W-1+B)/B for which SR-SGC with lambda = `most` has s = `tolerance`, if there is one."""
    fold = max(2, -(-most // tolerance))
    return range(fold, fold + (tolerance_of(1, fold, most) == tolerance))


def backups(bounds: Bounds) -> Batch:
    """Some shares and some slacks."""
    share, slack = (axis.ravel() for axis in np.meshgrid(BACKUP_SHARES, BACKUP_SLACKS))
    return Batch(bounds.scheme, bounds.workers, {"share": share, "mu": slack}, share.size)


def stretches(bounds: Bounds) -> Batch:
    """K as few stretches as there are, or more of them: most // 1, most // 2, ... rounded up, about a quarter apart."""
    shares = {-(-bounds.steps // number) for number in steps(bounds.steps, STRETCHES_STEP)}
    lengths: IntArray = np.array(sorted(shares), dtype=np.int64)
    values = {"copies": np.full(lengths.size, bounds.workers), "steps": lengths, "quantile": np.ones(lengths.size)}
    return Batch(bounds.scheme, bounds.workers, values, lengths.size)


def steps(most: int, fraction: float) -> list[int]:
    """1, 2, 3, ... up to `most`, in steps of at least 1 and at most `fraction` of the last."""
    found, value = [], 1
    while value <= most:
        found.append(value)
        value += max(1, math.floor(value * fraction))
    return found


def windows(scheme: str, max_delay: int, longest: int) -> IntArray:
    """(pairs, 2): the (B, W) that a sequential scheme takes with T <= max_delay and W <= longest, W by W."""
    window, burst = (axis.ravel() for axis in np.mgrid[2 : longest + 1, 1 : max_delay + 1])
    every = Batch(scheme, 1, {"burst": burst, "window": window, "max_stragglers": np.zeros_like(burst)}, burst.size)
    pairs: IntArray = np.stack([burst, window], axis=1)[every.fits() & (every.delay() <= max_delay)]
    return pairs


def sequential(scheme: str, workers: int, pairs: IntArray, most: IntArray, code: str | None) -> Batch:
    """All of these lambda with each (B, W)."""
    burst, window = np.repeat(pairs, most.size, axis=0).T
    values = {"burst": burst, "window": window, "max_stragglers": np.tile(most, len(pairs))}
    return Batch(scheme, workers, values, burst.size, code)
