"""Schemes without memory, `uncoded` and `gc`: every job is one round, and loads move nothing but a constant.

Earliest decode: the (n-s)-th answer for a cyclic code, the last group's first answer for a fractional one; all s share
one sorted row. Read next: `multiplexed_mu.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.cover import Cover, decode_delays
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import PlainRounds, Played, lay_out
from gradmux.orchestrator.evaluate.published.mu_rule import Cut
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import limited
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.schemes.scheme import FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column."""
    jobs = setting.jobs
    shift_s = np.broadcast_to(setting.shift_s(batch.task_load()), (jobs, batch.size))
    decode_s = fractional_s(batch, draws, jobs) if batch.code == "fractional" else ordered_s(batch, draws, jobs)
    waits = np.zeros(batch.size, dtype=np.int64)
    if isinstance(setting.wait, Mu):
        ready_s, waits = _by_mu(batch, setting.wait, draws, decode_s, shift_s)
    else:
        ready_s = decode_s + shift_s
    total_s, durations_s, peak = ready_s.sum(axis=0), ready_s, None
    billed_s = draws.worked_s[:jobs].sum() + draws.workers * shift_s.sum(axis=0)
    calls = np.full(batch.size, draws.workers * jobs)
    if detail or limited(setting) or draws.failing:
        timeline = lay_out(PlainRounds(ready_s, shift_s, np.full(batch.size, jobs)), setting, draws)
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


def _by_mu(
    batch: Batch, wait: Mu, draws: Draws, decode_s: FloatArray, shift_s: FloatArray
) -> tuple[FloatArray, IntArray]:
    """(R, P) durations and (P,) waits. Model "either" lets every set go without which the round decodes."""
    cut = Cut(draws, wait.mu)
    ready_s = np.empty_like(decode_s)
    waits = np.zeros(batch.size, dtype=np.int64)
    limit = batch.tolerance()
    for t in range(len(decode_s)):
        late = cut.late(t, shift_s[t])
        if wait.straggler_model == "either":
            limit = draws.workers - 1 - np.searchsorted(draws.sorted_s[t], decode_s[t])
        refused = late > limit
        let_go = np.where(refused, 0 if wait.wait_out == "all" else limit, late)
        ready_s[t] = cut.closing(t, late, let_go).duration_s(shift_s[t])
        waits += refused
    return ready_s, waits
