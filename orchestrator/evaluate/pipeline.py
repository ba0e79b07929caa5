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
from gradmux.orchestrator.evaluate.chains import ChainTable
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
    stopped = np.zeros(table.size, dtype=np.bool_)
    """(columns,) does a job never decode, since all attempts of a worker fail?"""
    again = _Again(table, setting.limits.attempts)
    for _ in range(setting.jobs):
        start_s, job = queue.take(-np.inf if room is None or running is None else running.at_most(room))
        takes_s = table.takes_s[job, columns]
        stopped |= np.isinf(takes_s)
        decoded_s = start_s + np.where(stopped, 0.0, takes_s)
        over_s = again.sent(job, start_s, decoded_s)
        if running is not None:
            running.drop(start_s)
            running.add(np.concatenate([start_s[:, np.newaxis] + table.arrivals_s(job), over_s], axis=1))
        queue.decoded(job, decoded_s)
        total_s = np.maximum(total_s, decoded_s)
    return table.played(np.where(stopped, np.inf, total_s), again, None if running is None else running.peak)


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
    """(rows, widest n) delays of one job on one n, before any load; -inf beyond n, and where the first attempt fails"""
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
            answers_s[place * jobs : (place + 1) * jobs, widest - batch.workers :] = draws.at_first_s(jobs)
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

    def played(self, total_s: FloatArray, again: _Again, peak: IntArray | None) -> list[Played]:
        """The results by batch; `again`: what calls that failed made of it."""
        results, start, jobs = [], 0, len(self.takes_s)
        for batch, draws in self.parts:
            mine = slice(start, start := start + batch.size)
            calls = np.full(batch.size, jobs * batch.workers)
            results.append(
                Played(
                    total_s=total_s[mine],
                    billed_s=draws.worked_s[:jobs].sum() + calls * self.shift_s[mine] + again.billed_s[mine],
                    invocations=calls + again.calls[mine],
                    waits=np.zeros_like(calls),
                    durations_s=self.takes_s[:, mine],
                    peak=None if peak is None else peak[mine],
                )
            )
        return results


class _Again:
    """What becomes of the calls that fail, of all columns."""

    def __init__(self, table: _Table, attempts: int) -> None:
        self._table = table
        jobs = len(table.takes_s)
        rows = [draws.chains(job) for _, draws in table.parts for job in range(jobs)]
        self._chains = ChainTable.of(rows, attempts) if any(row is not None for row in rows) else None
        self.billed_s: FloatArray = np.zeros(table.size)
        """(columns,) seconds beyond one load's shift for each"""
        self.calls: IntArray = np.zeros(table.size, dtype=np.int64)
        """(columns,) beyond the first of each worker and job"""

    def sent(self, job: IntArray, start_s: FloatArray, decoded_s: FloatArray) -> FloatArray:
        """(columns, any number) when the chains of `job` (columns,) are over; -inf: none."""
        if self._chains is None:
            return np.empty((job.size, 0))
        rows, shift_s = self._table.first_row + job, self._table.shift_s
        over, cells = self._chains.over(rows, start_s, shift_s, decoded_s), self._chains.cells[rows]
        took_s = over.at_s - start_s[:, np.newaxis] - shift_s[:, np.newaxis]
        self.billed_s += np.where(cells, took_s, 0.0).sum(axis=1)
        self.calls += np.where(cells, over.sent - 1, 0).sum(axis=1)
        return np.where(cells, over.at_s, -np.inf)


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
