"""Schemes without memory, `uncoded` and `gc`: every job is one round, and loads move nothing but a constant.

Earliest decode: the (n-s)-th answer for a cyclic code, the last group's first answer for a fractional one; all s share
one sorted row. Under the papers' rule: `published/one_round_mu.py`. Read next: `backup.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.cover import Cover, decode_delays
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import PlainRounds, Played, lay_out
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import limited
from gradmux.orchestrator.schemes.scheme import FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column, each as long as its decode takes."""
    decode_s, shift_s = decodes_s(batch, setting, draws)
    waits = np.zeros(batch.size, dtype=np.int64)
    return settle(decode_s + shift_s, shift_s, waits, setting, draws, detail=detail)


def decodes_s(batch: Batch, setting: Setting, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """(jobs, P) when each round decodes, from its dispatch and before any load; and what the loads add to delays."""
    shift_s = np.broadcast_to(setting.shift_s(batch.task_load()), (setting.jobs, batch.size))
    of_code = fractional_s if batch.code == "fractional" else ordered_s
    return of_code(batch, draws, setting.jobs), shift_s


def settle(
    ready_s: FloatArray, shift_s: FloatArray, waits: IntArray, setting: Setting, draws: Draws, *, detail: bool
) -> Played:
    """What rounds that close `ready_s` (jobs, P) after their dispatch make of a run."""
    jobs, size = ready_s.shape
    total_s, durations_s, peak = ready_s.sum(axis=0), ready_s, None
    billed_s = draws.worked_s[:jobs].sum() + draws.workers * shift_s.sum(axis=0)
    calls = np.full(size, draws.workers * jobs)
    if detail or limited(setting) or draws.failing:
        timeline = lay_out(PlainRounds(ready_s, shift_s, np.full(size, jobs)), setting, draws)
        total_s, durations_s, peak = timeline.total_s, timeline.durations_s, timeline.peak
        billed_s, calls = billed_s + timeline.again_s, calls + timeline.again_calls
    return Played(
        total_s=total_s,
        billed_s=billed_s,
        invocations=calls,
        waits=waits,
        durations_s=durations_s,
        peak=peak,
    )


def ordered_s(batch: Batch, draws: Draws, rounds: int) -> FloatArray:
    """(rounds, P) delay of the answer with which each round decodes, for a code that any n - s answers decode."""
    return draws.sorted_s[:rounds, draws.workers - 1 - batch.tolerance()]


def fractional_s(batch: Batch, draws: Draws, rounds: int) -> FloatArray:
    """(rounds, P) the same for fractional codes; what has as many groups is worked out once."""
    chunks, inverse = np.unique(batch.chunks(), return_inverse=True)
    cover = Cover(draws.workers, chunks)
    delays_s = [decode_delays(cover, draws.lineup(t), draws.delays_s[t]) for t in range(rounds)]
    return np.stack(delays_s)[:, inverse]
