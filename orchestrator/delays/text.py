"""A delay profile drawn with characters: the heat map worker by round, and the tail. For a terminal.

Knows no terminal: it returns text, and the caller prints it. Read next: `plots.py`, the same as pictures.
"""

from __future__ import annotations

import math

import numpy as np

from gradmux.orchestrator.delays.profile import DelayProfile, FloatArray, IntArray
from gradmux.orchestrator.delays.statistics import usable_answers

SHADES = " ░▒▓█"
LIMITS = (1.2, 1.5, 2.0, 5.0)
"""a cell is one shade darker from each of these multiples of its round's fastest answer on"""
FAILED = "×"
LEGEND = "over the round's fastest:  ' ' to 1.2   ░ to 1.5   ▒ to 2   ▓ to 5   █ above   × failed"
SKETCHED = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
"""quantiles of the tail sketch"""


def heat_map(profile: DelayProfile, *, width: int = 64, height: int = 20) -> str:
    """Workers from left to right, rounds from top to bottom, in at most `width` x `height` characters and three lines.

    A character that stands for several answers shows the slowest of them; a failed one counts as slower than any.
    """
    over_fastest = _over_fastest(profile)
    rows, columns = _starts(profile.rounds, height), _starts(profile.workers, width)
    cells = np.maximum.reduceat(np.maximum.reduceat(over_fastest, rows, axis=0), columns, axis=1)
    margin = len(str(profile.rounds - 1))
    lines = [f"{row:>{margin}} │{_shaded(line)}│" for row, line in zip(rows, cells, strict=True)]
    title = f"{'':{margin}}  worker 0 .. {profile.workers - 1}, round 0 .. {profile.rounds - 1} downwards"
    return "\n".join([title, *lines, LEGEND])


def tail_sketch(profile: DelayProfile, *, width: int = 48) -> str:
    """One line per quantile of the delays of all answers: share, seconds, and a bar on a logarithmic scale."""
    delays_s = profile.delays_s[usable_answers(profile)]
    values_s = np.quantile(delays_s, SKETCHED)
    low_s = max(float(delays_s.min()), 1e-3)
    span = math.log(max(float(values_s[-1]) / low_s, 1.0 + 1e-9))
    lines = [f"  share   within   {low_s:.3g} s .. {values_s[-1]:.3g} s, logarithmic"]
    for share, value_s in zip(SKETCHED, values_s.tolist(), strict=True):
        filled = round(width * math.log(max(value_s, low_s) / low_s) / span)
        lines.append(f"{share:7.1%} {value_s:8.3f} s  {'▇' * min(filled, width)}")
    return "\n".join(lines)


def _over_fastest(profile: DelayProfile) -> FloatArray:
    """Delays over the fastest answer of their round; inf where failed, and everywhere in a round without answers."""
    fastest_s = profile.delays_s.min(axis=1, keepdims=True)
    known = np.isfinite(fastest_s) & (fastest_s > 0)
    return np.where(known, profile.delays_s / np.where(known, fastest_s, 1.0), np.where(profile.failed, np.inf, 1.0))


def _shaded(cells: FloatArray) -> str:
    levels = np.searchsorted(LIMITS, cells, side="right")
    return "".join(FAILED if math.isinf(cell) else SHADES[level] for cell, level in zip(cells, levels, strict=True))


def _starts(length: int, blocks: int) -> IntArray:
    """First indices of at most `blocks` blocks of nearly equal length."""
    count = min(length, blocks)
    return np.arange(count) * length // count
