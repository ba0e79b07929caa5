"""Is a difference in float32 an error, or rounding that the model amplifies? Twice the precision tells.

A difference beyond EXACT is looked into in float64, where rounding is 2e-9 times as large: there it must be below
EXACT_64, and in float32 below ROUNDED. Read next: `here.py`, which trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scripts.exactness.here import Case, Setting, Verdict, judge

EXACT = 1e-5
EXACT_64 = 1e-11
"""in float64"""
ROUNDED = 1e-3
"""more than this no conditioning excuses"""


def precise_of(case: Case, verdict: Verdict, schemes: Sequence[Setting]) -> Verdict | None:
    """The case in float64, where its difference in float32 leaves that open; None where it is decided."""
    if verdict.refused or verdict.difference < EXACT or not verdict.difference < ROUNDED:
        return None
    return judge(in_float64(case), schemes)


def is_exact(verdict: Verdict, precise: Verdict | None) -> bool:
    """Does the case train as the plain loop does?"""
    if precise is None:
        return not verdict.refused and verdict.difference < EXACT
    return not precise.refused and precise.difference < EXACT_64


def in_float64(case: Case) -> Case:
    """The same model and rows in twice the precision."""
    return replace(case, training={**case.training, "dtype": "float64"})
