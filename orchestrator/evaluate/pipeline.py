"""`pipeline`: rounds overlap. A small event simulation per parameter set, those of all n at the same step at once.

Each step dispatches one job in every column: at the first instant at which some model is ready and n invocations fit
under the concurrency, the job that waits with the lowest number. What a job takes is known beforehand, since nothing
that happens elsewhere changes it. Read next: `backup.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.in_flight import InFlight
from gradmux.orchestrator.evaluate.one_round import fractional_s
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.schemes.scheme import FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every job of every column; `durations_s` are by job, from its dispatch to its decode."""
    return play_all([(batch, draws)], setting, detail=detail)[0]


def play_all(parts: Sequence[tuple[Batch, Draws]], setting: Setting, *, detail: bool) -> list[Played]:
    """The same for batches with different n, in one go."""
    table = _Table.of(parts, setting)
    running = InFlight(table.size) if detail or setting.limits.concurrency is not None else None
    room = None if setting.limits.concurrency is None else setting.limits.concurrency - table.workers
    queue = _Queue(setting, table.size)
    columns = np.arange(table.size)
    total_s = np.zeros(table.size)
    for _ in range(setting.jobs):
        start_s, job = queue.take(-np.inf if room is None or running is None else running.at_most(room))
        if running is not None:
            running.drop(start_s)
            running.add(start_s[:, np.newaxis] + table.arrivals_s(job))
        decoded_s = start_s + table.takes_s[job, columns]
        queue.decoded(job, decoded_s)
        total_s = np.maximum(total_s, decoded_s)
    return table.played(total_s, None if running is None else running.peak)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What each job takes in each column of all batches."""

    parts: Sequence[tuple[Batch, Draws]]
    workers: IntArray
    """(columns,) n"""
    takes_s: FloatArray
    """(jobs, columns) from dispatch to decode"""
    shift_s: FloatArray
    """(columns,) what the load adds to each delay"""
    answers_s: FloatArray
    """(rows, widest n) delays of one job on one n, before any load; -inf beyond n"""
    first_row: IntArray
    """(columns,) row of job 0"""

    @classmethod
    def of(cls, parts: Sequence[tuple[Batch, Draws]], setting: Setting) -> _Table:
        jobs = setting.jobs
        sizes = [batch.size for batch, _ in parts]
        shifts_s = [setting.shift_s(batch.task_load()) for batch, _ in parts]
        takes_s = [
            fractional_s(batch, draws, jobs) + shift for (batch, draws), shift in zip(parts, shifts_s, strict=True)
        ]
        widest = max(batch.workers for batch, _ in parts)
        answers_s = np.full((len(parts) * jobs, widest), -np.inf)
        for place, (batch, draws) in enumerate(parts):
            answers_s[place * jobs : (place + 1) * jobs, widest - batch.workers :] = draws.sorted_s[:jobs]
        return cls(
            parts=parts,
            workers=np.repeat([batch.workers for batch, _ in parts], sizes),
            takes_s=np.concatenate(takes_s, axis=1),
            shift_s=np.concatenate(shifts_s),
            answers_s=answers_s,
            first_row=np.repeat(np.arange(len(parts)) * jobs, sizes),
        )

    @property
    def size(self) -> int:
        """Columns of all batches."""
        return self.workers.size

    def arrivals_s(self, job: IntArray) -> FloatArray:
        """(columns, widest n) when the answers to `job` (columns,) come, from its dispatch; -inf for none."""
        return self.answers_s.take(self.first_row + job, axis=0) + self.shift_s[:, np.newaxis]

    def played(self, total_s: FloatArray, peak: IntArray | None) -> list[Played]:
        """The results by batch."""
        results, start, jobs = [], 0, len(self.takes_s)
        for batch, draws in self.parts:
            mine = slice(start, start := start + batch.size)
            calls = np.full(batch.size, jobs * batch.workers)
            results.append(
                Played(
                    total_s=total_s[mine],
                    billed_s=draws.delays_s[:jobs].sum() + calls * self.shift_s[mine],
                    invocations=calls,
                    waits=np.zeros_like(calls),
                    durations_s=self.takes_s[:, mine],
                    peak=None if peak is None else peak[mine],
                )
            )
        return results


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
