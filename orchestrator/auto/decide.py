"""Which scheme a job should go on with, given the delays that its own rounds have met.

Everything that bounds allow is evaluated on these delays, and `pipeline-auto`, which fits its size to the delays as it
goes, is played by the loop itself. A change must promise a gain, since measured delays are only a sample. Pure.
Read next: `pilot.py`, which asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradmux.orchestrator.auto.choice import AutoJob, Choice, plain
from gradmux.orchestrator.auto.measured import pooled
from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.evaluate import grids
from gradmux.orchestrator.tune.fitting import FITS, play_fitting
from gradmux.orchestrator.tune.material import prepare
from gradmux.orchestrator.tune.options import FITTING, TuneOptions
from gradmux.orchestrator.tune.search import batches, rank, try_all

FEWEST_ROUNDS = 5
"""measured rounds below which nothing is decided"""
GAIN = 0.05
"""a change must promise at least this share less time: measured delays are only a sample"""
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
        total_s = play_fitting(material, options).total_s
        found.append(Choice(FITTING, {}, job.workers, "", total_s / options.jobs))
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
