"""What a delay profile leaves open, in one line each: said alike by everything that plays it. Read next: `find.py`."""

from __future__ import annotations

from gradmux.orchestrator.delays.profile import DelayProfile

FEW_ROUNDS = 20
"""with fewer the profile says little about rare slow answers"""
NO_SLOPE = "the slope with load is not known, so computing counts as free: give --slope, or probe loads"


def few_rounds(rounds: int) -> str:
    """For profiles of less than FEW_ROUNDS."""
    return f"{rounds} rounds are few: rare slow answers may be missing; measure at least {FEW_ROUNDS}"


def failed_share(share: float) -> str:
    """For profiles with failed invocations."""
    how = "each is found when its stated delay, or the round's slowest answer, is over, and is invoked again"
    return f"{share:.1%} of the invocations failed: {how}"


def doubts(profile: DelayProfile, slope_s: float | None = None) -> tuple[str, ...]:
    """What to warn of before the profile is played; `slope_s`: given by hand."""
    told = []
    if profile.failed.any():
        told.append(failed_share(float(profile.failed.mean())))
    if slope_s is None and profile.slope_s is None:
        told.append(NO_SLOPE)
    if profile.rounds < FEW_ROUNDS:
        told.append(few_rounds(profile.rounds))
    return tuple(told)
