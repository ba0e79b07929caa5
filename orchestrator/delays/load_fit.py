"""How delays grow with the load: base and slope from profiles measured at several loads, whatever outliers they hold.

Theil-Sen: the slope is the median of the slopes of all pairs of points: up to 29 % of the points may be anything.
A point is the median of one round, so that one round needs half its workers late before it is an outlier at all.
Knows no fleet. Read next: `statistics.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.delays.profile import DelayProfile, FloatArray
from gradmux.orchestrator.delays.statistics import usable_answers
from gradmux.orchestrator.errors import ConfigError

MOST_POINTS = 1000
"""points that a fit uses at most, evenly taken: all pairs of more would take memory without telling more"""


@dataclass(frozen=True, slots=True)
class LoadFit:
    """delay = base_s + slope_s * load, for an ordinary answer."""

    base_s: float
    """seconds at load 0"""
    slope_s: float
    """further seconds per unit of load (one whole batch)"""
    slope_low_s: float
    """quarter of the pairs of points have a slope below this ..."""
    slope_high_s: float
    """... and a quarter above this"""
    points: int

    def at(self, load: float) -> float:
        """Seconds that an ordinary answer takes at `load`."""
        return self.base_s + self.slope_s * load


def fit_load(profiles: Sequence[DelayProfile]) -> LoadFit:
    """Base and slope from profiles of one function at two loads or more. Raises ConfigError for fewer loads."""
    loads, medians_s = [], []
    for profile in profiles:
        delays_s = np.where(usable_answers(profile), profile.delays_s, np.nan)
        delays_s = delays_s[~np.isnan(delays_s).all(axis=1)]
        medians_s.append(np.nanmedian(delays_s, axis=1))
        loads.append(np.full(len(delays_s), profile.load))
    if not profiles:
        raise ConfigError("no delay profile to fit a slope to")
    return theil_sen(np.concatenate(loads), np.concatenate(medians_s))


def theil_sen(loads: FloatArray, delays_s: FloatArray) -> LoadFit:
    """Base and slope from single points, (points,) each. Raises ConfigError unless two loads differ."""
    if len(np.unique(loads)) == 1:
        raise ConfigError(f"a slope needs measurements at two loads or more, got only load {loads[0]:g}")
    if len(loads) > MOST_POINTS:
        keep = np.linspace(0, len(loads) - 1, MOST_POINTS).round().astype(np.int64)
        loads, delays_s = loads[keep], delays_s[keep]
    first, second = np.triu_indices(len(loads), k=1)
    run = loads[second] - loads[first]
    rise_s = delays_s[second] - delays_s[first]
    low, slope, high = np.quantile(rise_s[run != 0] / run[run != 0], (0.25, 0.5, 0.75)).tolist()
    base = float(np.median(delays_s - slope * loads))
    return LoadFit(base_s=base, slope_s=slope, slope_low_s=low, slope_high_s=high, points=len(loads))
