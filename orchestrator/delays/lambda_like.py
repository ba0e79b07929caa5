"""Delays that behave like AWS Lambda's: the model, its parameters, and presets fitted on measured traces.

One answer takes

    delay = floor_s + slope_s * (load - base_load)
          + above * early + outlier,      above = gap_s + LogNormal + slow + stretch

where *slow* strikes mostly the same, slow-prone indices; *stretch* delays all workers in a rare slow round; *early*
cuts a share of the answers short; an *outlier* is a client's timeout that hits a few workers of a rare round together.

The presets (`presets.py`) were fitted on public traces of 256 workers, 10 to 30 rounds each
(`benchmarks/profile_calibration.py` prints measured beside generated). In those traces the correlation of an index's
straggling is the same at lags of 1 to 8 rounds: slow indices stay slow for as long as was measured, there is no short
memory. Hence classes of indices, not a Gilbert-Elliott chain; `prone_rounds` adds a finite memory for longer runs,
which no trace can settle. And they are neighbours: the first 8 of every 32 in all the traces that have them, an
artefact of the client that invoked them. That matters to codes whose groups are neighbours too; hence `prone_run`.

Knows no scheme. Read next: `presets.py`, then `generators.py`, the one way to call this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.delays.profile import BoolArray, DelayProfile, FloatArray
from gradmux.orchestrator.errors import ConfigError

SHARES = (
    *("early_share", "early_prone", "early_low", "early_high", "prone_share", "prone_rate", "other_rate"),
    *("stretch_rate", "outlier_rate", "outlier_long_share"),
)
"""parameters that lie in 0..1"""
MAGNITUDES = (
    *("floor_s", "load", "base_load", "gap_s", "spread_s", "spread_sigma", "round_sigma", "early_sigma"),
    *("slow_s", "slow_sd_s", "stretch_s", "outlier_s", "outlier_long_s"),
)
"""parameters that are finite and not negative"""


@dataclass(frozen=True, slots=True)
class LambdaLike:
    """Parameters of the model. Times in seconds, shares in 0..1, loads in fractions of one batch."""

    floor_s: float = 0.55
    """fastest possible answer at `base_load`: network and warm start"""
    slope_s: float = 0.0
    """further seconds per unit of load"""
    load: float = 0.0
    """load at which delays are generated"""
    base_load: float = 0.0
    """load at which `floor_s` holds"""

    gap_s: float = 0.0
    """ordinary answers come this much after the floor, besides their spread"""
    spread_s: float = 0.09
    """median of the log-normal spread of ordinary answers"""
    spread_sigma: float = 0.3
    """its sigma (of the logarithm)"""
    round_sigma: float = 0.0
    """sigma of a factor on the spread that all answers of a round share"""

    early_share: float = 0.0
    """share of the answers that are cut short"""
    early_sigma: float = 0.0
    """sigma of a log-normal factor of mean 1 on that share, drawn for each round"""
    early_prone: float = 1.0
    """factor on that share for slow-prone indices"""
    early_low: float = 0.0
    """an early answer takes a uniform share of its time above the floor, from this ..."""
    early_high: float = 1.0
    """... to this"""

    prone_share: float = 0.0
    """share of the worker indices that are slow-prone"""
    prone_rate: float = 0.0
    """chance of a slow answer from a slow-prone index"""
    other_rate: float = 0.0
    """chance of a slow answer from any other index"""
    prone_run: int = 1
    """slow-prone indices come in runs of this many, evenly spaced; 1: independently of each other"""
    prone_rounds: float = math.inf
    """mean rounds until an index draws its class anew (runs: all indices at once); inf: never"""
    slow_s: float = 0.5
    """mean further seconds of a slow answer"""
    slow_sd_s: float = 0.2
    """their standard deviation (Gamma)"""

    stretch_rate: float = 0.0
    """chance that a round is slow for all workers"""
    stretch_s: float = 0.0
    """mean further seconds in such a round; the round's own mean is exponential, and so is each answer about it"""

    outlier_rate: float = 0.0
    """chance that a round has outliers at all"""
    outlier_workers: float = 4.0
    """mean number of workers hit in such a round (geometric)"""
    outlier_s: float = 25.5
    """further seconds of an outlier: the client's first timeout"""
    outlier_long_s: float = 37.0
    """further seconds when the second timeout passed as well"""
    outlier_long_share: float = 0.0
    """share of the outliers that wait for the second timeout"""

    def __post_init__(self) -> None:
        for label in SHARES:
            _check(label, getattr(self, label), 0.0, 1.0)
        for label in MAGNITUDES:
            _check(label, getattr(self, label), 0.0, math.inf)
        _check("prone_run", self.prone_run, 1, math.inf)
        _check("prone_rounds", self.prone_rounds, 1.0, math.inf)
        _check("outlier_workers", self.outlier_workers, 1.0, math.inf)
        _check("slope_s", self.slope_s, -math.inf, math.inf)
        if self.early_low > self.early_high:
            raise ConfigError(f"early_low = {self.early_low:g} is above early_high = {self.early_high:g}")
        if self.start_s < 0:
            raise ConfigError(f"floor_s, slope_s and load give a fastest answer of {self.start_s:g} s; it must be >= 0")

    @property
    def start_s(self) -> float:
        """Fastest possible answer at `load`, seconds."""
        return self.floor_s + self.slope_s * (self.load - self.base_load)


def sample(parameters: LambdaLike, rounds: int, workers: int, seed: int) -> DelayProfile:
    """A profile of the model; equal arguments give equal bits.

    Each part of the model has a random stream of its own: changing one part's parameters leaves the others' draws.
    """
    shape = (rounds, workers)
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(6)]
    classes, spread, early, slow, stretch, outliers = streams
    prone = _prone(parameters, shape, classes)
    delays_s = _spread(parameters, shape, spread)
    delays_s += _slow(parameters, prone, slow)
    delays_s += _stretch(parameters, shape, stretch)
    delays_s *= _early_factor(parameters, prone, early)
    delays_s += parameters.start_s
    _add_outliers(parameters, delays_s, outliers)
    return DelayProfile(delays_s, load=parameters.load, slope_s=parameters.slope_s)


def _spread(p: LambdaLike, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Ordinary time above the floor: the gap and a log-normal whose scale each round shares."""
    scale_s = p.spread_s * np.exp(p.round_sigma * rng.standard_normal((shape[0], 1)))
    exponent = rng.standard_normal(shape)
    exponent *= p.spread_sigma
    return p.gap_s + scale_s * np.exp(exponent, out=exponent)


def _slow(p: LambdaLike, prone: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Further seconds of slow answers, 0 for the others."""
    slow = rng.random(prone.shape) < np.where(prone, p.prone_rate, p.other_rate)
    further_s = np.zeros(prone.shape)
    further_s[slow] = _gamma(p.slow_s, p.slow_sd_s, int(slow.sum()), rng)
    return further_s


def _prone(p: LambdaLike, shape: tuple[int, int], rng: np.random.Generator) -> BoolArray:
    """Which index is slow-prone in which round: drawn once, and anew with chance 1 / prone_rounds each round."""
    rounds, workers = shape
    fresh = _classes(p, shape, rng)
    if math.isinf(p.prone_rounds):
        return np.broadcast_to(fresh[0], shape)
    together = p.prone_run > 1
    drawn = rng.random((rounds, 1 if together else workers)) < 1.0 / p.prone_rounds
    drawn[0] = True
    since = np.maximum.accumulate(np.where(drawn, np.arange(rounds)[:, None], 0), axis=0)
    prone: BoolArray = fresh[since, np.arange(workers)]
    return prone


def _classes(p: LambdaLike, shape: tuple[int, int], rng: np.random.Generator) -> BoolArray:
    """Independent draws of the classes of all indices, one for each round: true where slow-prone."""
    if p.prone_run == 1 or p.prone_share == 0.0:
        return rng.random(shape) < p.prone_share
    period = round(p.prone_run / p.prone_share)
    first = rng.integers(period, size=(shape[0], 1))
    prone: BoolArray = (np.arange(shape[1]) - first) % period < p.prone_run
    return prone


def _stretch(p: LambdaLike, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Further seconds in rounds that are slow for all workers, 0 in the others."""
    further_s = np.zeros(shape)
    slow_rounds = rng.random(shape[0]) < p.stretch_rate
    mean_s = rng.exponential(p.stretch_s, size=(int(slow_rounds.sum()), 1))
    further_s[slow_rounds] = mean_s * rng.standard_exponential((len(mean_s), shape[1]))
    return further_s


def _early_factor(p: LambdaLike, prone: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Share of its time above the floor that each answer takes: 1, or less for early ones."""
    round_factor = np.exp(p.early_sigma * rng.standard_normal((len(prone), 1)) - p.early_sigma**2 / 2)
    early = rng.random(prone.shape) < p.early_share * round_factor * np.where(prone, p.early_prone, 1.0)
    factor = np.ones(prone.shape)
    factor[early] = rng.uniform(p.early_low, p.early_high, size=int(early.sum()))
    return factor


def _add_outliers(p: LambdaLike, delays_s: FloatArray, rng: np.random.Generator) -> None:
    """Adds a client timeout to a few workers of a rare round, in place."""
    rounds, workers = delays_s.shape
    counts = np.minimum(rng.geometric(1.0 / p.outlier_workers, size=rounds), workers)
    for row in np.flatnonzero(rng.random(rounds) < p.outlier_rate):
        hit = rng.choice(workers, size=counts[row], replace=False)
        long = rng.random(counts[row]) < p.outlier_long_share
        delays_s[row, hit] += np.where(long, p.outlier_long_s, p.outlier_s)


def _gamma(mean: float, sd: float, count: int, rng: np.random.Generator) -> FloatArray:
    if mean == 0.0 or sd == 0.0:
        return np.full(count, mean)
    return rng.gamma((mean / sd) ** 2, sd**2 / mean, size=count)


def _check(label: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high or (math.isinf(value) and label != "prone_rounds"):
        raise ConfigError(f"{label} must lie in {low:g} .. {high:g}, got {value:g}")
