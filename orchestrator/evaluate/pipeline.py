"""`pipeline`: rounds overlap. A small event simulation per parameter set, all sets of one n at the same step at once.

Each step dispatches one job in every column: at the first instant at which some model is ready and n invocations fit
under the concurrency, the job that waits with the lowest number. What a job takes is known beforehand, since nothing
that happens elsewhere changes it. Read next: `backup.py`.
"""

from __future__ import annotations

import numpy as np

from orchestrator.evaluate.batch import Batch
from orchestrator.evaluate.bits import IntArray
from orchestrator.evaluate.draws import Draws
from orchestrator.evaluate.in_flight import InFlight
from orchestrator.evaluate.one_round import fractional_s
from orchestrator.evaluate.played import Played
from orchestrator.evaluate.setting import Setting
from orchestrator.schemes.scheme import FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every job of every column; `durations_s` are by job, from its dispatch to its decode."""
    shift_s = setting.shift_s(batch.task_load())
    takes_s = fractional_s(batch, draws, setting.jobs) + shift_s
    concurrency = setting.limits.concurrency
    room = None if concurrency is None else concurrency - draws.workers
    running = InFlight(batch.size) if detail or room is not None else None
    queue = _Queue(setting, batch.size)
    columns = np.arange(batch.size)
    total_s = np.zeros(batch.size)
    for _ in range(setting.jobs):
        free_s = -np.inf if room is None or running is None else running.at_most(room)
        start_s, job = queue.take(free_s)
        if running is not None:
            running.drop(start_s)
            running.add(start_s[:, np.newaxis] + (draws.sorted_s[job] + shift_s[:, np.newaxis]))
        decoded_s = start_s + takes_s[job, columns]
        queue.decoded(job, decoded_s)
        total_s = np.maximum(total_s, decoded_s)
    calls = np.full(batch.size, setting.jobs * draws.workers)
    return Played(
        total_s=total_s,
        billed_s=draws.delays_s[: setting.jobs].sum() + calls * shift_s,
        invocations=calls,
        waits=np.zeros_like(calls),
        durations_s=takes_s,
        peak=None if running is None else running.peak,
    )


class _Queue:
    """The next job of each model, and when its weights are there."""

    def __init__(self, setting: Setting, columns: int) -> None:
        models = min(setting.models, setting.jobs)
        self._jobs, self._models = setting.jobs, models
        self._job: IntArray = np.tile(np.arange(models), (columns, 1))
        """(columns, models)"""
        self._ready_s: FloatArray = np.zeros((columns, models))
        """(columns, models); inf: that model has no more jobs"""
        self._now_s = np.zeros(columns)

    def take(self, free_s: FloatArray | float) -> tuple[FloatArray, IntArray]:
        """(columns,) when the next job goes out, capacity being there from `free_s` on, and which.

        One that was waiting goes before one that becomes ready at that very instant: its model has not stepped yet.
        """
        start_s = np.maximum(np.maximum(self._now_s, free_s), self._ready_s.min(axis=1))
        waiting = self._ready_s < start_s[:, np.newaxis]
        waiting |= ~waiting.any(axis=1, keepdims=True) & (self._ready_s <= start_s[:, np.newaxis])
        job = np.where(waiting, self._job, self._jobs).min(axis=1)
        self._now_s = start_s
        return start_s, job

    def decoded(self, job: IntArray, at_s: FloatArray) -> None:
        """`job` (columns,) decodes at `at_s`: from then on its model's next job is ready."""
        columns, model = np.arange(job.size), job % self._models
        following = job + self._models
        self._job[columns, model] = following
        self._ready_s[columns, model] = np.where(following < self._jobs, at_s, np.inf)
