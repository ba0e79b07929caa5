"""What a delay profile is like, in figures: stragglers, bursts, persistence, tail, cold starts, failures.

Only warm answers count: a failed invocation has no delay, and a cold start says nothing about stragglers (a profile
with no warm answer at all is described by its cold ones). A *straggler at mu* is an answer that comes later than
`(1 + mu)` times the fastest answer of its round.

Knows no scheme. Read next: `load_fit.py` (growth with the load), `text.py` and `plots.py` (pictures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gradmux.orchestrator.delays.profile import BoolArray, DelayProfile, FloatArray, IntArray

TOLERANCES = (1.0, 0.5, 0.2)
"""the mu at which stragglers are counted"""
TAIL = (0.5, 0.9, 0.99, 0.999)
"""the quantiles that describe the tail"""
OUTLIER_FACTOR = 5.0
"""an outlier takes more than this many times the median of its round"""


@dataclass(frozen=True, slots=True)
class Straggling:
    """Stragglers at one mu. Chance means: as many stragglers in every round, but other indices each time."""

    mu: float
    share: float
    """of all answers"""
    share_sd: float
    """standard deviation of a round's share, from round to round"""
    bursts: tuple[int, ...]
    """how many bursts (a worker straggles in consecutive rounds) were 1, 2, ... rounds long"""
    burst_mean: float
    """mean length, rounds; 0 without stragglers. By chance about 1 / (1 - share), less where the profile ends"""
    burst_max: int
    persistence: float | None
    """variance over the indices of how often each straggles, over its value by chance: 1 is none. Grows with the number
    of rounds. None where chance leaves no variance: no stragglers, or no other workers"""
    repeat_ratio: float | None
    """how much likelier than by chance a straggler of one round straggles in another: 1 is no persistence"""
    correlation: float | None
    """of an index's straggling in two rounds, mean over all pairs of rounds: 0 is no persistence"""
    lag1_correlation: float | None
    """the same for consecutive rounds: above `correlation` where straggling has a short memory"""
    neighbour_correlation: float | None
    """of how often an index straggles with how often the next one does: 0 by chance, above it where slow indices are
    neighbours, as a code's groups may be"""


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """A delay profile in figures. Times in seconds; shares in 0..1."""

    name: str
    rounds: int
    workers: int
    load: float
    slope_s: float | None
    """seconds per unit of load, where the profile says so"""
    median_s: float
    fastest_s: float
    """fastest answer of a round, median over the rounds"""
    slowest_s: float
    """slowest answer of a round, median over the rounds"""
    slowest_mean_s: float
    """its mean: what a round takes that waits for all workers"""
    round_sd_s: float
    """standard deviation of a round's median, from round to round"""
    tail_s: tuple[float, ...]
    """delay at the quantiles TAIL"""
    tail_relative: tuple[float, ...]
    """the same for delays over the fastest of their round"""
    outlier_share: float
    """answers that take more than OUTLIER_FACTOR times the median of their round"""
    outlier_rounds_share: float
    """rounds that have one"""
    cold_share: float
    """of the answers"""
    failed_share: float
    """of the invocations"""
    straggling: tuple[Straggling, ...]
    """at each of TOLERANCES"""

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the tail as a mapping from quantile to value."""
        plain = asdict(self)
        for name in ("tail_s", "tail_relative"):
            plain[name] = {f"{quantile:g}": value for quantile, value in zip(TAIL, plain[name], strict=True)}
        return plain


def summarise(profile: DelayProfile, tolerances: Sequence[float] = TOLERANCES) -> ProfileSummary:
    """The profile in figures; rounds without any usable answer count as failures and nothing else."""
    usable = usable_answers(profile)
    heard = usable.any(axis=1)
    delays_s, usable = np.where(usable, profile.delays_s, np.nan)[heard], usable[heard]
    fastest_s, median_s, slowest_s = (
        np.nanmin(delays_s, axis=1),
        np.nanmedian(delays_s, axis=1),
        np.nanmax(delays_s, axis=1),
    )
    outliers = delays_s > OUTLIER_FACTOR * median_s[:, None]
    return ProfileSummary(
        name=profile.name,
        rounds=profile.rounds,
        workers=profile.workers,
        load=profile.load,
        slope_s=profile.slope_s,
        median_s=float(np.nanmedian(delays_s)),
        fastest_s=float(np.median(fastest_s)),
        slowest_s=float(np.median(slowest_s)),
        slowest_mean_s=float(slowest_s.mean()),
        round_sd_s=float(median_s.std()),
        tail_s=_quantiles(delays_s[usable]),
        tail_relative=_quantiles(_over_fastest(delays_s, fastest_s)[usable]),
        outlier_share=float(outliers.sum() / usable.sum()),
        outlier_rounds_share=float(outliers.any(axis=1).mean()),
        cold_share=float((profile.cold & ~profile.failed).sum() / (~profile.failed).sum()),
        failed_share=float(profile.failed.mean()),
        straggling=tuple(_straggling(delays_s > (1.0 + mu) * fastest_s[:, None], usable, mu) for mu in tolerances),
    )


def usable_answers(profile: DelayProfile) -> BoolArray:
    """(rounds, workers), true for the answers that the figures rest on: the warm ones, or any where none is warm."""
    warm: BoolArray = ~profile.failed & ~profile.cold
    return warm if warm.any() else ~profile.failed


def burst_lengths(straggles: BoolArray) -> IntArray:
    """Lengths in rounds of all bursts: runs of rounds in which one worker straggles. Input (rounds, workers)."""
    edge = np.zeros((1, straggles.shape[1]), dtype=np.int8)
    change = np.diff(np.concatenate([edge, straggles.astype(np.int8), edge]), axis=0)
    # Column by column, starts and ends alternate, so the k-th start belongs to the k-th end.
    starts, ends = (np.nonzero((change == sign).T)[1] for sign in (1, -1))
    return (ends - starts).astype(np.int64)


def _straggling(straggles: BoolArray, usable: BoolArray, mu: float) -> Straggling:
    by_round = straggles.sum(axis=1) / usable.sum(axis=1)
    expected = np.where(usable, by_round[:, None], 0.0)
    surplus = np.where(usable, straggles - expected, 0.0)
    lengths = burst_lengths(straggles)
    return Straggling(
        mu=mu,
        share=float(straggles.sum() / usable.sum()),
        share_sd=float(by_round.std()),
        bursts=tuple(np.bincount(lengths)[1:].tolist()),
        burst_mean=float(lengths.mean()) if lengths.size else 0.0,
        burst_max=int(lengths.max(initial=0)),
        persistence=_ratio((surplus.sum(axis=0) ** 2).sum(), (surplus**2).sum()),
        repeat_ratio=_ratio(_pairs(straggles.astype(np.float64)), _pairs(expected)),
        correlation=_ratio(_pairs(surplus), _pairs_at_most(surplus)),
        lag1_correlation=_lag1(surplus),
        neighbour_correlation=_neighbours(surplus.sum(axis=0)[usable.any(axis=0)]),
    )


def _pairs(values: FloatArray) -> float:
    """sum over workers and over ordered pairs of different rounds of the product of the two values."""
    return float((values.sum(axis=0) ** 2 - (values**2).sum(axis=0)).sum())


def _pairs_at_most(surplus: FloatArray) -> float:
    """The value of `_pairs` had every worker the same (standardised) surplus in every round."""
    spread = np.sqrt((surplus**2).sum(axis=1))
    return float(spread.sum() ** 2 - (spread**2).sum())


def _lag1(surplus: FloatArray) -> float | None:
    spread = np.sqrt((surplus**2).sum(axis=1))
    return _ratio((surplus[:-1] * surplus[1:]).sum(), (spread[:-1] * spread[1:]).sum())


def _neighbours(surplus: FloatArray) -> float | None:
    if len(surplus) == 1:
        return None
    around_mean = surplus - surplus.mean()
    return _ratio((around_mean[:-1] * around_mean[1:]).sum(), (around_mean[:-1] ** 2).sum())


def _ratio(value: float, by: float) -> float | None:
    return float(value / by) if by > 0 else None


def _over_fastest(delays_s: FloatArray, fastest_s: FloatArray) -> FloatArray:
    """Each delay over the fastest of its round; a round whose fastest took less than a nanosecond counts as even."""
    timed = fastest_s >= 1e-9
    return np.where(timed[:, None], delays_s / np.where(timed, fastest_s, 1.0)[:, None], 1.0)


def _quantiles(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.quantile(values, TAIL).tolist())
