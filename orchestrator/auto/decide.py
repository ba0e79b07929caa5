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

from gradmux.orchestrator.auto.choice import AutoJob, Choice, plain
from gradmux.orchestrator.auto.measured import pooled
from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.errors import TaskFailed
from gradmux.orchestrator.evaluate.worth_trying import steps
from gradmux.orchestrator.schemes import backup, gradient_coding, pipeline, uncoded
from gradmux.orchestrator.schemes.worth import Worth
from gradmux.orchestrator.tune.fitting import FITS, bill_of, play_fitting
from gradmux.orchestrator.tune.material import Material, prepare
from gradmux.orchestrator.tune.money import worth
from gradmux.orchestrator.tune.options import FITTING, TuneOptions
from gradmux.orchestrator.tune.search import batches, rank, try_all

FEWEST_ROUNDS = 5
"""measured rounds below which nothing is decided"""
GAIN = 0.05
"""a change must promise at least this share less of bill and time: measured delays are only a sample"""
SCHEMES = (uncoded.INFO.name, gradient_coding.INFO.name, backup.INFO.name, pipeline.INFO.name)
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
    took: float | None = None
    """E of a gradient, as it really was under `before`; None when that was for measuring"""
    given_up: Collection[Key] = ()
    """choices that turned out bad"""

    @property
    def rounds(self) -> int:
        """Measured ones."""
        return sum(window.rounds for window in self.windows)


def decide(job: AutoJob, now: Situation) -> Choice:
    """What to go on with.

    Uncoded it is unless another promises that E is less by GAIN; and so it stays with what ran before, which is given
    up when it turned out to cost more than uncoded would have.
    """
    before = now.before
    if now.rounds < FEWEST_ROUNDS:
        return Choice(before.scheme, before.params, before.workers, f"{now.rounds} measured rounds are too few")
    found, slowest_s = candidates(job, now)
    worth = worth_of_job(job)
    uncoded = found[plain(job.workers).key]
    if now.took is not None and now.took > _predicted(uncoded, worth) and before.key != uncoded.key:
        told = f"{before.scheme} took {worth.told(now.took)} a gradient, more than uncoded would"
        return _told(uncoded, told, uncoded)
    best = _best([choice for choice in found.values() if choice.key not in now.given_up], worth)
    if math.isinf(_predicted(best, worth)):
        told = f"whatever was tried would stop: all {job.attempts} attempts of a worker would fail in some round"
        return Choice(before.scheme, before.params, before.workers, told)
    if _gain(best, uncoded, worth) < GAIN:
        return _told(uncoded, f"nothing promises to be {_better(worth)}", uncoded)
    kept = found.get(before.key)
    if kept is not None and not _worth_it(best, kept, now, slowest_s, worth):
        told = "still the best" if now.took is not None else f"nothing promises to be {_better(worth)}"
        return _told(kept, told, uncoded)
    return _told(best, f"{_why(best)} of {len(found)} over {now.rounds} measured rounds", uncoded)


def _told(choice: Choice, reason: str, uncoded: Choice) -> Choice:
    """With its reason, and what uncoded is predicted to take."""
    return replace(choice, reason=reason, uncoded_s=uncoded.predicted_s, uncoded_usd=uncoded.predicted_usd)


def worth_of_job(job: AutoJob) -> Worth:
    """By what choices are compared."""
    return worth(
        TuneOptions(hour_usd=job.hour_usd, prices=job.prices, memory_mb=job.memory_mb, parameters=job.parameters)
    )


def _worth_it(best: Choice, kept: Choice, now: Situation, slowest_s: float, worth: Worth) -> bool:
    """Does `best` promise to cost enough less than what runs?

    It must do so by the prediction and by what that really cost, and save more than the wait for all that is in flight.
    """
    wanted = FITS if kept.scheme == FITTING else GAIN
    if _gain(best, kept, worth) < wanted:
        return False
    if now.took is None:
        return True
    saved = min(_predicted(kept, worth), now.took) - _predicted(best, worth)
    return saved > max(wanted * now.took, worth.value(0.0, slowest_s) / now.left)


def candidates(job: AutoJob, now: Situation) -> tuple[dict[Key, Choice], float]:
    """Everything that may be chosen, with what a gradient is predicted to take; a round's slowest answer, seconds."""
    options = _options(job, now)
    material = prepare(pooled(now.windows, job.workers, now.slope_s or 0.0), options)
    tried = try_all(batches(material, options), material, options)
    found = []
    for place, column in rank(tried, options):
        each = tried[place]
        seconds, usd = float(each.total_s[column]) / options.jobs, float(each.cost_usd[column]) / options.jobs
        params, workers = each.batch.params(column), each.batch.workers
        found.append(Choice(each.batch.scheme, params, workers, "", seconds, predicted_usd=usd))
    if options.max_load is None:
        seconds, usd = _fitting(material, options)
        found.append(Choice(FITTING, {}, job.workers, "", seconds, predicted_usd=usd))
    answered_s = np.where(np.isinf(material.delays_s), 0.0, material.delays_s)
    return {choice.key: choice for choice in found}, float(answered_s.max(axis=1).mean())


def _fitting(material: Material, options: TuneOptions) -> tuple[float, float]:
    """(seconds, dollars) of a gradient under what fits itself; inf when all attempts of a worker would fail."""
    try:
        run = play_fitting(material, options)
    except TaskFailed:
        return math.inf, math.inf
    return run.total_s / options.jobs, bill_of(run, options) / options.jobs


def _options(job: AutoJob, now: Situation) -> TuneOptions:
    return TuneOptions(
        jobs=max(2 * job.models, min(JUDGED_JOBS, now.left)),
        models=job.models,
        concurrency=job.concurrency,
        workers=_numbers(job),
        closing=job.closing,
        max_load=1.0 if now.slope_s is None else job.max_load,
        schemes=SCHEMES,
        seed=job.seed,
        hour_usd=job.hour_usd,
        prices=job.prices,
        memory_mb=job.memory_mb,
        parameters=job.parameters,
        passes=job.passes,
        attempts=job.attempts,
        timeout_s=job.timeout_s,
    )


def _numbers(job: AutoJob) -> tuple[int, ...]:
    """The n worth trying: all sizes in steps, and even shares of the concurrency."""
    shares = {job.concurrency // parts for parts in range(1, 2 * job.models + 1)}
    sizes = {*steps(job.workers, STEP), *shares, job.workers}
    return tuple(sorted(size for size in sizes if 1 <= size <= job.workers))


def _best(choices: Sequence[Choice], worth: Worth) -> Choice:
    """The one that costs least, but for what FITS."""
    least = min(choices, key=lambda choice: _predicted(choice, worth))
    fitting = next((choice for choice in choices if choice.scheme == FITTING), least)
    return fitting if _gain(least, fitting, worth) < FITS else least


def _why(choice: Choice) -> str:
    return "fits itself to the delays; about the best" if choice.scheme == FITTING else "the best"


def _better(worth: Worth) -> str:
    return "faster" if math.isinf(worth.hour_usd) else "worth it"


def _predicted(choice: Choice, worth: Worth) -> float:
    """E of a gradient."""
    assert choice.predicted_s is not None
    return worth.value(choice.predicted_usd or 0.0, choice.predicted_s)


def _gain(new: Choice, old: Choice, worth: Worth) -> float:
    """Share of E that `new` saves."""
    return 1 - _predicted(new, worth) / _predicted(old, worth)
