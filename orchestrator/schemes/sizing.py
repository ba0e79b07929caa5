"""How many workers one job should get, and in how many groups, given how long invocations take.

With n workers in G groups, and D independent, a job lasts until the slowest group's fastest answer:

    E[tau] = integral of 1 - (1 - S(x)^(n/G))^G dx + slope / G,       S(x) = P(D > x)

Each of M models repeats that without pause, and each invocation holds one of C places for E[D] + slope / G. So a step
takes at least the longer of tau and of a turn, n (E[D] + slope / G) M / (rho C): more workers shorten the first and
lengthen the second. Both vary, so that where they are about equal now one is longer, now the other, and a step takes
more than either on average: (tau^p + turn^p)^(1/p). p = 8 was chosen on measured delays (docs/experiments.md).
Pure arithmetic. Read next: `pipeline_auto.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.schemes.delay_estimate import Delays
from gradmux.orchestrator.schemes.scheme import FloatArray

STEP = 1.12
"""ratio of neighbouring numbers of workers that are tried"""
SHARPNESS = 8
"""p; the larger it is, the less latency and turn add up where they are about equal"""
PRICE = 1e-2
"""of the time that a step takes, which it may take longer if it needs no workers instead of all"""


@dataclass(frozen=True, slots=True)
class Size:
    """One way to serve a job."""

    workers: int
    """n"""
    groups: int
    """G"""


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


def best_size(delays: Delays, bounds: Bounds) -> Size:
    """The size under which a step takes the least time; of nearly equal ones, that with fewer workers."""
    sizes = [
        Size(int(workers), 1 << power)
        for power in range(bounds.most_groups.bit_length())
        for workers in _numbers(1 << power, bounds.most_workers)
    ]
    workers = np.array([size.workers for size in sizes], dtype=np.float64)
    groups = np.array([size.groups for size in sizes], dtype=np.float64)
    step_s = np.linalg.norm(
        [latency_s(delays, workers, groups), _turn_s(delays, workers, groups, bounds)], SHARPNESS, axis=0
    )
    return sizes[int(np.argmin(step_s * (1.0 + PRICE * workers / bounds.most_workers)))]


def latency_s(delays: Delays, workers: FloatArray, groups: FloatArray) -> FloatArray:
    """E[tau] of each size, (sizes,) seconds."""
    group_waits = delays.survival[:-1] ** (workers / groups)[:, np.newaxis]
    waits = 1.0 - (1.0 - group_waits) ** groups[:, np.newaxis]
    latency: FloatArray = delays.times_s[0] + waits @ np.diff(delays.times_s) + delays.slope_s / groups
    return latency


def _turn_s(delays: Delays, workers: FloatArray, groups: FloatArray, bounds: Bounds) -> FloatArray:
    """How often a model may have so many workers without holding more than its share of C, (sizes,) seconds."""
    held_s = delays.mean_s + delays.slope_s / groups
    return workers * held_s * bounds.models / (bounds.busy * bounds.concurrency)


def _numbers(least: int, most: int) -> list[int]:
    """Whole numbers from `least` to `most`, neighbours in the ratio STEP."""
    steps = int(np.log(most / least) / np.log(STEP)) if most > least else 0
    return sorted({round(least * STEP**step) for step in range(steps + 1)} | {most}) if most >= least else []
