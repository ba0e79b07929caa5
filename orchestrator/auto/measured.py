"""What a run's own rounds tell about delays.

Calls that have not come back yet are the slow ones: to leave them out would make every scheme look faster than it is,
and uncoded most of all. They get a delay drawn from the Kaplan-Meier estimate, given how long they have been awaited.
Knows no choice. Read next: `decide.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.delays.from_record import Calls, calls_of
from gradmux.orchestrator.record import EndLine, Line, RoundLine
from gradmux.orchestrator.schemes.delay_estimate import kaplan_meier
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray
from gradmux.orchestrator.schemes.worth import Worth

LEAST_S = 1e-6
"""what a delay is taken for at least when it is shifted to another load"""


def measured(lines: Sequence[Line], workers: int, slope_s: float = 0.0, seed: int = 0) -> DelayProfile | None:
    """The delays of these lines, without cold starts; None when there are none.

    A row is a round, if as many workers as in all others were invoked in it. Under a scheme that invokes now more and
    now fewer, rows of `workers` answers are made of one round after the other, shifted to their median load.
    """
    calls = calls_of(lines)
    if not len(calls.rounds):
        return None
    load = float(np.median(calls.loads))
    failed = np.isfinite(calls.found_s)
    answers_s = np.maximum(_settled(calls, slope_s, seed) + slope_s * load, LEAST_S)
    delays_s = np.where(failed, calls.found_s, answers_s)
    _, sizes = np.unique(calls.rounds, return_counts=True)
    if len(set(sizes.tolist())) == 1:
        width = sizes[0]
        return _by_round(delays_s.reshape(-1, width), calls.cold.reshape(-1, width), failed.reshape(-1, width), load)
    rows = int((~calls.cold).sum()) // workers
    if not rows:
        return None
    delays_s, failed = (of[~calls.cold][: rows * workers].reshape(rows, workers) for of in (delays_s, failed))
    return DelayProfile(delays_s, load=load, failed=failed)


def _by_round(delays_s: FloatArray, cold: BoolArray, failed: BoolArray, load: float) -> DelayProfile | None:
    """Without rounds that were mostly cold; other cold starts count as an ordinary answer of their round."""
    warm_rows = cold.mean(axis=1) <= 0.5
    if not warm_rows.any():
        return None
    delays_s, cold, failed = delays_s[warm_rows], cold[warm_rows], failed[warm_rows]
    usual_s = np.nanmedian(np.where(cold | failed, np.nan, delays_s), axis=1, keepdims=True)
    return DelayProfile(np.where(cold, usual_s, delays_s), load=load, failed=failed & ~cold)


def _settled(calls: Calls, slope_s: float, seed: int) -> FloatArray:
    """(calls,) delays without load; what has not come back gets one that is longer than it has been awaited."""
    base_s = np.maximum(calls.delays_s - slope_s * calls.loads, LEAST_S)
    known = ~calls.running & np.isfinite(base_s)
    if not calls.running.any() or not known.any():
        return base_s
    times_s, survival = kaplan_meier(base_s[known], base_s[calls.running])
    awaited_s = base_s[calls.running]
    left = np.concatenate([[1.0], survival])[np.searchsorted(times_s, awaited_s, side="right")]
    drawn = np.random.default_rng((seed, 3)).random(len(awaited_s)) * left
    place = np.searchsorted(-survival, -drawn, side="left")
    base_s[calls.running] = np.maximum(times_s[np.minimum(place, len(times_s) - 1)], awaited_s)
    return base_s


def seconds_a_job(lines: Sequence[Line]) -> float | None:
    """What a gradient of these rounds took: from the first dispatch to the last step, by the number of gradients."""
    rest = [line for line in lines if isinstance(line, RoundLine | EndLine)]
    starts_s = [group.at_s for line in rest for group in line.sent]
    ends_s = [each.at_s for line in rest for each in line.decoded]
    jobs = sum(each.steps for line in rest for each in line.decoded)
    return (max(ends_s) - min(starts_s)) / jobs if starts_s and ends_s else None


def usd_a_job(lines: Sequence[Line], worth: Worth) -> float | None:
    """What a gradient of these rounds cost, late and redundant answers included."""
    rest = [line for line in lines if isinstance(line, RoundLine | EndLine)]
    jobs = sum(each.steps for line in rest for each in line.decoded)
    billed_s = sum(arrival.billed_s for line in rest for arrival in line.arrivals if arrival.final)
    calls = sum(len(group.workers) for line in rest for group in line.sent)
    return (billed_s * worth.held_usd + calls * worth.call_usd) / jobs if jobs else None


def pooled(windows: Sequence[DelayProfile], workers: int, slope_s: float) -> DelayProfile:
    """All windows as one profile of `workers` columns, at the load of uncoded; narrow rows are laid side by side."""
    load = 1 / workers
    parts = [
        np.maximum(_widened(each.delays_s, workers) + slope_s * (load - each.load), _floor_s(each)) for each in windows
    ]
    found_s = np.concatenate([_widened(each.found_s, workers) for each in windows])
    return DelayProfile(np.concatenate(parts), load=load, slope_s=slope_s, found_s=found_s)


def _floor_s(window: DelayProfile) -> float:
    """A shift to another load makes no answer faster than half the fastest that was seen."""
    return float(window.delays_s.min()) / 2


def _widened(delays_s: FloatArray, workers: int) -> FloatArray:
    """(rounds, workers): each row, followed by the rows after it as far as they are needed."""
    folds = -(-workers // delays_s.shape[1])
    beside = [np.roll(delays_s, -fold, axis=0) for fold in range(folds)]
    wide: FloatArray = np.concatenate(beside, axis=1)[:, :workers]
    return wide
