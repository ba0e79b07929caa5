"""Which scheme a job should go on with, given the delays that its own rounds have met.

Everything that bounds allow is evaluated on these delays, and `pipeline-auto`, which fits its size to the delays as it
goes, is played by the loop itself. A change must promise a gain, since measured delays are only a sample. Pure.
Read next: `pilot.py`, which asks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orchestrator.auto.choice import AutoJob, Choice, plain
from orchestrator.auto.measured import pooled
from orchestrator.delays import DelayProfile
from orchestrator.evaluate import grids
from orchestrator.policies import Limits
from orchestrator.schemes.scheme import FloatArray
from orchestrator.simulate import SimulationOptions, simulate
from orchestrator.tune.material import Material, prepare
from orchestrator.tune.options import TuneOptions
from orchestrator.tune.search import batches, rank, try_all

FEWEST_ROUNDS = 5
"""measured rounds below which nothing is decided"""
GAIN = 0.05
"""a change must promise at least this share less time: measured delays are only a sample"""
FITS = 0.1
"""what fits itself to the delays is taken although a fixed choice promises up to this share less time: that is a
promise of the best among hundreds on one sample, and it holds as long as the delays stay the same"""
FITTING = "pipeline-auto"
SCHEMES = ("uncoded", "gc", "backup", "pipeline")
"""without the sequential ones, which take long to search while the job waits: where they are allowed, models overlap"""
JUDGED_JOBS = 60
"""gradients over which candidates are compared, at most"""
STEP = 0.4
"""n grows by this share from one candidate to the next"""
Key = tuple[str, int, tuple[tuple[str, Any], ...]]
"""of a choice"""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known when a choice is due."""

    windows: Sequence[DelayProfile]
    """delays, as measured"""
    slope_s: float | None
    """seconds per unit of load; None: no worker may get a larger load than under uncoded"""
    before: Choice
    """what ran last"""
    left: int
    """gradients still to come"""
    took_s: float | None = None
    """what a gradient really took under `before`; None when that was for measuring"""
    given_up: Collection[Key] = ()
    """choices that turned out bad"""

    @property
    def rounds(self) -> int:
        """Measured ones."""
        return sum(window.rounds for window in self.windows)


def decide(job: AutoJob, now: Situation) -> Choice:
    """What to go on with.

    Uncoded it is unless another promises GAIN less time; and so it stays with what ran before, which is given up when
    it turned out slower than uncoded would have been.
    """
    before = now.before
    if now.rounds < FEWEST_ROUNDS:
        return Choice(before.scheme, before.params, before.workers, f"{now.rounds} measured rounds are too few")
    found, slowest_s = candidates(job, now)
    uncoded = found[plain(job.workers).key]
    uncoded_s = _predicted_s(uncoded)
    if now.took_s is not None and now.took_s > uncoded_s and before.key != uncoded.key:
        told = f"{before.scheme} took {now.took_s:.3f} s a gradient, more than uncoded would"
        return replace(uncoded, reason=told, uncoded_s=uncoded_s)
    best = _best([choice for choice in found.values() if choice.key not in now.given_up])
    if _gain(best, uncoded) < GAIN:
        return replace(uncoded, reason="nothing promises to be faster", uncoded_s=uncoded_s)
    kept = found.get(before.key)
    if kept is not None and not _worth_it(best, kept, now, slowest_s):
        told = "still the best" if now.took_s is not None else "nothing promises to be faster"
        return replace(kept, reason=told, uncoded_s=uncoded_s)
    return replace(best, reason=f"{_why(best)} of {len(found)} over {now.rounds} measured rounds", uncoded_s=uncoded_s)


def _worth_it(best: Choice, kept: Choice, now: Situation, slowest_s: float) -> bool:
    """Does `best` promise enough less time than what runs?

    It must do so by the prediction and by what that really took, and save more than the wait for all that is in flight.
    """
    wanted = FITS if kept.scheme == FITTING else GAIN
    if _gain(best, kept) < wanted:
        return False
    if now.took_s is None:
        return True
    saved_s = min(_predicted_s(kept), now.took_s) - _predicted_s(best)
    return saved_s > max(wanted * now.took_s, slowest_s / now.left)


def candidates(job: AutoJob, now: Situation) -> tuple[dict[Key, Choice], float]:
    """Everything that may be chosen, with what a gradient is predicted to take; a round's slowest answer, seconds."""
    options = _options(job, now)
    material = prepare(pooled(now.windows, job.workers, now.slope_s or 0.0), options)
    tried = try_all(batches(material, options), material, options)
    found = []
    for place, column in rank(tried, options):
        batch, total_s = tried[place].batch, float(tried[place].total_s[column])
        found.append(Choice(batch.scheme, batch.params(column), batch.workers, "", total_s / options.jobs))
    if options.max_load is None:
        found.append(_fitting(job, material, options))
    return {choice.key: choice for choice in found}, float(material.delays_s.max(axis=1).mean())


def _options(job: AutoJob, now: Situation) -> TuneOptions:
    return TuneOptions(
        jobs=max(2 * job.models, min(JUDGED_JOBS, now.left)),
        models=job.models,
        concurrency=job.concurrency,
        workers=_numbers(job),
        in_flight_cap=job.in_flight_cap,
        max_load=1.0 if now.slope_s is None else job.max_load,
        schemes=SCHEMES,
        seed=job.seed,
    )


def _numbers(job: AutoJob) -> tuple[int, ...]:
    """The n worth trying: all sizes in steps, and even shares of the concurrency."""
    shares = {job.concurrency // parts for parts in range(1, 2 * job.models + 1)}
    sizes = {*grids.steps(job.workers, STEP), *shares, job.workers}
    return tuple(sorted(size for size in sizes if 1 <= size <= job.workers))


def _fitting(job: AutoJob, material: Material, options: TuneOptions) -> Choice:
    """`pipeline-auto`, which starts with no knowledge of the delays, in the loop itself."""
    delays_s = _dealt(material.delays_s, options.jobs, job.seed)
    limits = Limits(concurrency=job.concurrency)
    played = SimulationOptions(options.jobs, job.models, limits=limits, load=material.load, seed=job.seed)
    total_s = simulate(delays_s, FITTING, {}, played).total_s
    return Choice(FITTING, {}, job.workers, "", total_s / options.jobs)


def _dealt(delays_s: FloatArray, rounds: int, seed: int) -> FloatArray:
    """(rounds, columns) the rows again and again, each time with their columns in another order.

    So what learns from the past may use what persists, but cannot learn the rows by heart.
    """
    rng = np.random.default_rng((seed, 2))
    laps = [delays_s[:, rng.permutation(delays_s.shape[1])] for _ in range(math.ceil(rounds / len(delays_s)))]
    return np.concatenate(laps)[:rounds]


def _best(choices: Sequence[Choice]) -> Choice:
    """The fastest, but for what FITS."""
    fastest = min(choices, key=_predicted_s)
    fitting = next((choice for choice in choices if choice.scheme == FITTING), fastest)
    return fitting if _gain(fastest, fitting) < FITS else fastest


def _why(choice: Choice) -> str:
    return "fits itself to the delays; about the fastest" if choice.scheme == FITTING else "fastest"


def _predicted_s(choice: Choice) -> float:
    assert choice.predicted_s is not None
    return choice.predicted_s


def _gain(new: Choice, old: Choice) -> float:
    """Share of time that `new` saves."""
    return 1 - _predicted_s(new) / _predicted_s(old)
