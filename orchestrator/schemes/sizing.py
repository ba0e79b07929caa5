"""How many workers one job should get, in how many groups or for how many steps, given how long invocations take.

With n workers in G groups, K steps at once (only with G = 1), and D independent, a job lasts until the slowest group's
fastest answer:

    E[tau] = integral of 1 - (1 - S(x)^(n/G))^G dx + slope K / G,       S(x) = P(D > x)

Each of M models repeats that without pause, and each invocation holds one of C places for E[D] + slope K / G. So a job
takes at least the longer of tau and of a turn, n (E[D] + slope K / G) M / (rho C): more workers shorten the first and
lengthen the second. Both vary, so that where they are about equal now one is longer, now the other, and a job takes
more than either on average: (tau^p + turn^p)^(1/p). p = 8 was chosen on measured delays (docs/experiments.md).

A run is over when the last of its models is. Of j jobs in a row that takes j E[tau] + sqrt(j) e, e being by how much
the longest of M jobs is longer than one: exact for j = 1, about right for many. What it costs is

    E = bill + V time:       M n ((E[D] + slope K / G) p_s + p_c) / K  +  V (step + e / sqrt(j)) / K       a step

with p_s the price of a second and p_c that of a call. K is what makes the steps that are left into j jobs, j as small
as may be or about a quarter apart. Pure arithmetic. Read next: `pipeline_auto.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.schemes.delay_estimate import Delays
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.schemes.worth import WORTH, Worth

STEP = 1.12
"""ratio of neighbouring numbers of workers that are tried"""
SHARPNESS = 8
"""p; the larger it is, the less latency and turn add up where they are about equal"""
PRICE = 1e-2
"""of what a step costs, which it may cost more if it needs no workers instead of all: sizes are told apart no finer"""
FEWER = 0.25
"""by this share at least the number of jobs differs between the K that are tried"""


@dataclass(frozen=True, slots=True)
class Size:
    """One way to serve a job."""

    workers: int
    """n"""
    groups: int
    """G"""
    steps: int = 1
    """K"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a size has to fit."""

    models: int
    """M"""
    concurrency: int
    """C"""
    busy: float
    """rho, share of C that may be busy"""
    most_workers: int
    most_groups: int
    """a power of two"""
    worth: Worth = WORTH
    """by what sizes are compared"""
    most_copies: int = 1
    """n of jobs of several steps: each copy is the work of a whole machine"""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Those that are compared, a column each: (sizes,) floats."""

    workers: FloatArray
    groups: FloatArray
    steps: FloatArray

    @property
    def load(self) -> FloatArray:
        """Batches that each worker computes."""
        return self.steps / self.groups

    def at(self, place: int) -> Size:
        return Size(int(self.workers[place]), int(self.groups[place]), int(self.steps[place]))


def best_size(delays: Delays, bounds: Bounds, left: int = 1, most_steps: int = 1) -> Size:
    """The size under which a step costs least; of nearly equal ones, that with fewer workers.

    `left`: steps that the job's model still has to make; `most_steps`: K at most.
    """
    sizes = _sizes(bounds, left, most_steps)
    cost = step_cost(delays, bounds, sizes.workers, sizes.groups, sizes.steps, left)
    return sizes.at(int(np.argmin(cost * (1.0 + PRICE * sizes.workers / bounds.most_workers))))


def step_cost(
    delays: Delays, bounds: Bounds, workers: FloatArray, groups: FloatArray, steps: FloatArray, left: int
) -> FloatArray:
    """E of one step of every model, (sizes,) dollars; seconds with V = inf."""
    latency, held = latency_s(delays, workers, groups, steps), held_s(delays, groups, steps)
    turn_s = workers * held * bounds.models / (bounds.busy * bounds.concurrency)
    jobs = np.ceil(left / steps)
    last_s = (last_latency_s(delays, workers, groups, bounds.models) + delays.slope_s * steps / groups) - latency
    took_s = np.linalg.norm([latency, turn_s], SHARPNESS, axis=0) + last_s / np.sqrt(jobs)
    worth = bounds.worth
    call_usd = np.where(steps > 1, worth.state_usd, worth.call_usd)
    bill_usd = bounds.models * workers * (held * worth.held_usd + call_usd)
    cost: FloatArray = worth.value(bill_usd, took_s) * jobs / left
    return cost


def latency_s(delays: Delays, workers: FloatArray, groups: FloatArray, steps: FloatArray | float = 1.0) -> FloatArray:
    """E[tau] of each size, (sizes,) seconds."""
    latency: FloatArray = _longest_s(delays, _answered(delays, workers, groups)) + delays.slope_s * steps / groups
    return latency


def last_latency_s(delays: Delays, workers: FloatArray, groups: FloatArray, models: int) -> FloatArray:
    """The same for the longest of a job of every model, without load."""
    return _longest_s(delays, _answered(delays, workers, groups) ** models)


def held_s(delays: Delays, groups: FloatArray, steps: FloatArray) -> FloatArray:
    """How long an invocation lasts, (sizes,) seconds."""
    return delays.mean_s + delays.slope_s * steps / groups


def _answered(delays: Delays, workers: FloatArray, groups: FloatArray) -> FloatArray:
    """(sizes, points - 1) chance that a job is over by each of the times, without load."""
    group_waits = delays.survival[:-1] ** (workers / groups)[:, np.newaxis]
    over: FloatArray = (1.0 - group_waits) ** groups[:, np.newaxis]
    return over


def _longest_s(delays: Delays, over: FloatArray) -> FloatArray:
    expected: FloatArray = delays.times_s[0] + (1.0 - over) @ np.diff(delays.times_s)
    return expected


def _sizes(bounds: Bounds, left: int, most_steps: int) -> _Sizes:
    """Single steps in G groups, then K steps at once on a few copies."""
    single = [
        (workers, 1 << power, 1)
        for power in range(bounds.most_groups.bit_length())
        for workers in _numbers(1 << power, bounds.most_workers)
    ]
    copies = range(1, min(bounds.most_copies, bounds.most_workers) + 1)
    several = [(workers, 1, steps) for steps in lengths(left, most_steps) for workers in copies]
    workers, groups, steps = np.array(single + several, dtype=np.float64).T
    return _Sizes(workers, groups, steps)


def lengths(left: int, most: int) -> list[int]:
    """The K > 1 worth trying: what makes j jobs of the steps that are left, j about a quarter apart."""
    found, jobs = set(), math.ceil(left / max(1, most))
    while (steps := math.ceil(left / jobs)) > 1:
        found.add(steps)
        jobs += max(1, int(jobs * FEWER))
    return sorted(found)


def _numbers(least: int, most: int) -> list[int]:
    """Whole numbers from `least` to `most`, neighbours in the ratio STEP."""
    steps = int(np.log(most / least) / np.log(STEP)) if most > least else 0
    return sorted({round(least * STEP**step) for step in range(steps + 1)} | {most}) if most >= least else []
