"""Which of the best few to take: the one that does well over resampled profiles, not the luckiest on the measured one.

Each resample draws the rounds anew (bootstrap) and adds what the profile cannot have
shown: of N measured answers, the next is slower than all of them with probability 1/(N + 1) (rule of succession).
Without that, a profile that happens to hold no rare slow answer would advise against any redundancy.
Knows no schemes. Read next: `tuner.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradmux.orchestrator.evaluate import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.tune.material import Material
from gradmux.orchestrator.tune.options import TuneOptions
from gradmux.orchestrator.tune.result import CrossValidation, Spread
from gradmux.orchestrator.tune.search import Tried, try_all

NEAR = 0.005
"""values that differ by less than this share count as equal: the cheaper, or the faster, is taken"""
UNSEEN = 20.0
"""an answer slower than any that was measured takes so many times the median; on AWS Lambda they took 13 to 40 times"""
MIN_HALF = 4
"""rounds in each half, below which nothing is cross-validated"""


class Finalists:
    """The sets that are compared: columns of some of the batches tried."""

    def __init__(self, tried: list[Tried], picks: list[tuple[int, int]]) -> None:
        """`picks`: (place in `tried`, column)."""
        self.picks = sorted(set(picks))
        self.batches: list[Batch] = []
        for place in sorted({place for place, _ in self.picks}):
            columns: IntArray = np.array([column for at, column in self.picks if at == place])
            self.batches.append(tried[place].batch.take(columns))

    def play(self, material: Material, options: TuneOptions) -> tuple[FloatArray, FloatArray]:
        """(finalists,) total seconds and dollars on these delays, in the order of `picks`."""
        played = try_all(self.batches, material, options)
        return np.concatenate([each.total_s for each in played]), np.concatenate([each.cost_usd for each in played])


class Resampled:
    """Totals and costs of all finalists on each resampled profile."""

    def __init__(self, finalists: Finalists, drawn: Sequence[Material], options: TuneOptions) -> None:
        """`drawn`: the resampled profiles."""
        played = [finalists.play(each, options) for each in drawn]
        self.total_s: FloatArray = np.array([total_s for total_s, _ in played])
        """(resamples, finalists)"""
        self.cost_usd: FloatArray = np.array([cost for _, cost in played])
        """(resamples, finalists)"""

    def spread(self, finalist: int) -> Spread | None:
        """How one finalist's time varies; None: it stops on all of them."""
        return Spread.of(self.total_s[:, finalist])

    def values(self, options: TuneOptions) -> FloatArray:
        """(resamples, finalists) what is to be least."""
        return options.value(self.cost_usd, self.total_s)

    def best(self, options: TuneOptions) -> int:
        """The finalist to take."""
        return _settled(self.total_s.mean(axis=0), self.cost_usd.mean(axis=0), options)


def settle(value: FloatArray, other: FloatArray) -> int:
    """The place of the least `value`; among those within NEAR of it, of the least `other`."""
    near = np.flatnonzero(value <= value.min() * (1.0 + NEAR))
    return int(near[np.argmin(other[near])])


def resample(material: Material, rounds: int, rng: np.random.Generator) -> Material:
    """As many rounds, drawn with replacement, with what the measured ones cannot have shown."""
    drawn = material.taken(rng.integers(len(material.delays_s), size=rounds))
    unseen = rng.random(drawn.delays_s.shape) < 1.0 / (material.delays_s.size + 1)
    answered_s = material.answered_s
    slow_s = max(UNSEEN * float(np.median(answered_s)), float(answered_s.max()))
    return replace(drawn, delays_s=np.where(unseen, slow_s, drawn.delays_s))


def cross_validate(tried: list[Tried], material: Material, options: TuneOptions) -> CrossValidation | None:
    """What it costs to search on one half of the rounds and to run on the other; None with too few rounds."""
    half = len(material.delays_s) // 2
    if half < MIN_HALF:
        return None
    every = Finalists(tried, [(place, column) for place, each in enumerate(tried) for column in range(each.batch.size)])
    rounds = np.arange(len(material.delays_s))
    halves = [every.play(material.taken(rows), options) for rows in np.array_split(rounds, 2)]
    loss = float(np.mean([_loss(halves[searched], halves[1 - searched], options) for searched in range(2)]))
    return CrossValidation(loss if np.isfinite(loss) else None, half)


def _loss(searched: tuple[FloatArray, FloatArray], run: tuple[FloatArray, FloatArray], options: TuneOptions) -> float:
    """What is lost on `run` by what is best on `searched`, as a share; both are (seconds, dollars). inf: it stops."""
    chosen = _settled(*searched, options)
    run_s, run_usd = run
    values = options.value(run_usd, run_s)
    least = float(values.min())
    return float(values[chosen]) / least - 1.0 if 0 < least < np.inf else 0.0


def _settled(total_s: FloatArray, cost_usd: FloatArray, options: TuneOptions) -> int:
    """The one to take: of those that are about equal the cheapest, or the fastest where the bill alone counts."""
    return settle(options.value(cost_usd, total_s), total_s if options.hour_usd == 0 else cost_usd)
