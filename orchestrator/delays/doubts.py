"""What a delay profile leaves open, in one line each: said alike by everything that plays it. Read next: `find.py`."""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.closing import TIMEOUT_S
from gradmux.orchestrator.delays.profile import DelayProfile

FEW_ROUNDS = 20
"""with fewer the profile says little about rare slow answers"""
NO_SLOPE = "the slope with load is not known, so computing counts as free: give --slope, or probe loads"


def few_rounds(rounds: int) -> str:
    """For profiles of less than FEW_ROUNDS."""
    return f"{rounds} rounds are few: rare slow answers may be missing; measure at least {FEW_ROUNDS}"


def failed_share(profile: DelayProfile, timeout_s: float) -> str:
    """For profiles with failed invocations."""
    stated = np.isfinite(profile.found_s[profile.failed])
    after = "the delay stated" if stated.all() else f"{timeout_s:g} s, the timeout"
    if stated.any() and not stated.all():
        after = f"the delay stated, or {timeout_s:g} s, the timeout"
    return f"{profile.failed.mean():.1%} of the invocations failed: each is found after {after}, and invoked again"


def doubts(profile: DelayProfile, slope_s: float | None = None, timeout_s: float = TIMEOUT_S) -> tuple[str, ...]:
    """What to warn of before the profile is played; `slope_s`: given by hand; `timeout_s`: of the function."""
    told = []
    if profile.failed.any():
        told.append(failed_share(profile, timeout_s))
    if slope_s is None and profile.slope_s is None:
        told.append(NO_SLOPE)
    if profile.rounds < FEW_ROUNDS:
        told.append(few_rounds(profile.rounds))
    return tuple(told)
