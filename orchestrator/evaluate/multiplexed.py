"""`m-sgc` that closes each round as early as it may: once what is due decodes and no other job can fail any more.

All columns share (B, W). A worker owes a job the private chunks that it was given and has not answered for; it redoes
them in its slots past W-2, where all others compute coded groups. With p groups' turns past, a job can still be saved
iff no worker owes more than B - p chunks, the past groups decode, and for each group g to come those that owe at most
g - p chunks cover it. Each of these holds from some instant on: the round closes at the last of them.
Late answers count until the job's deadline (`harvest_late`). Read next: `pipeline.py`.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.cover import Cover, kth
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import Timeline
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column."""
    return _Multiplexed(batch, setting, draws, detail).play()


class _Groups:
    """When coded groups decode, for codes of the batch's family."""

    def __init__(self, batch: Batch, draws: Draws) -> None:
        self.tolerance = batch.tolerance()
        self._draws = draws
        self._cover = Cover(batch.workers, batch.chunks()) if batch.code == "fractional" else None

    def decodes_s(self, job: int, group: int, at_s: FloatArray) -> FloatArray:
        """(columns,) when the answers at `at_s` (columns, n) decode one group of a job."""
        if self._cover is None:
            return kth(at_s, self._draws.workers - 1 - self.tolerance)
        return self._cover.covered_at(at_s[:, self._draws.lineup(job, group)])


class _Job:
    """When each private chunk of one job is found and each coded group decodes; inf: not yet known to be."""

    def __init__(self, job: int, burst: int, private: int, groups: _Groups) -> None:
        self._job, self._burst, self._private, self._groups = job, burst, private, groups
        self._found_s: list[FloatArray] = []
        """by private chunk sent: (columns, n) when it is in"""
        self._coded_s: list[FloatArray] = []
        """by coded group sent: (columns,) when it decodes"""
        self._before_s: list[FloatArray] = []
        """`_found_s` before the last slot was sent"""

    def send(self, start_s: FloatArray, at_s: FloatArray) -> None:
        """The job's next slot goes out at `start_s` (columns,), and is answered at `at_s` (columns, n)."""
        self._before_s = [*self._found_s, np.full_like(at_s, np.inf)]
        if len(self._found_s) < self._private:
            self._found_s.append(at_s)
            return
        redo = np.zeros(at_s.shape, dtype=np.bool_)
        for chunk, found_s in enumerate(self._found_s):
            lacking = (found_s > start_s[:, np.newaxis]) & ~redo
            redo |= lacking
            self._found_s[chunk] = np.where(lacking, np.minimum(found_s, at_s), found_s)
        coded_s = np.where(redo, np.inf, at_s)
        self._coded_s.append(self._groups.decodes_s(self._job, len(self._coded_s), coded_s))

    def lose(self, lost: BoolArray) -> None:
        """These workers' (columns, n) answers to the slot that was sent last will not come."""
        pairs = zip(self._found_s, self._before_s, strict=False)
        self._found_s = [np.where(lost, before_s, found_s) for found_s, before_s in pairs]

    def forget_after(self, end_s: FloatArray) -> None:
        """Chunks that come after the close of the round, `end_s` (columns,), have not been found."""
        late = end_s[:, np.newaxis]
        self._found_s = [np.where(found_s > late, np.inf, found_s) for found_s in self._found_s]

    def saved_s(self, start_s: FloatArray) -> FloatArray:
        """(columns,) when the job can no longer fail if no worker straggles; for its last round, when it decodes."""
        past = len(self._coded_s)
        found_s = np.array(self._found_s)
        owed = (found_s > start_s[:, np.newaxis]).sum(axis=0)
        instants = [start_s, *self._coded_s]
        if (owed > self._burst - past).any():
            instants.append(_owing_at_most(found_s, self._burst - past).max(axis=1))
        for ahead in range(self._burst - past):
            if ((owed > ahead).sum(axis=1) > self._groups.tolerance).any():
                free_s = _owing_at_most(found_s, ahead)
                instants.append(self._groups.decodes_s(self._job, past + ahead, free_s))
        saved_s: FloatArray = np.maximum.reduce(instants)
        return saved_s


def _owing_at_most(found_s: FloatArray, chunks: int) -> FloatArray:
    """(columns, n) when each worker owes at most so many chunks; `found_s` is (chunks sent, columns, n)."""
    sent = len(found_s)
    if chunks >= sent:
        return np.full(found_s.shape[1:], -np.inf)
    latest_s: list[FloatArray] = [np.full(found_s.shape[1:], -np.inf) for _ in range(chunks + 1)]
    # The latest chunks of each worker, latest first, by insertion: far faster here than numpy's partition.
    for chunk_s in found_s:
        for place, latest in enumerate(latest_s):
            chunk_s, latest_s[place] = np.minimum(chunk_s, latest), np.maximum(chunk_s, latest)
    return latest_s[chunks]


class _Multiplexed:
    def __init__(self, batch: Batch, setting: Setting, draws: Draws, detail: bool) -> None:
        self._batch, self._setting, self._draws = batch, setting, draws
        self._burst, self._private = int(batch.ints("burst")[0]), int(batch.ints("window")[0]) - 1
        self._delay = int(batch.delay()[0])
        assert (batch.ints("burst") == self._burst).all(), "one B at a time"
        assert (batch.ints("window") == self._private + 1).all(), "one W at a time"
        self._groups = _Groups(batch, draws)
        self._timeline = Timeline(setting, draws.workers, batch.size, watch=detail)
        self._active: deque[_Job] = deque()
        """oldest first"""
        self._billed_s = np.zeros(batch.size)

    def play(self) -> Played:
        rounds = self._setting.jobs + self._delay
        for t in range(rounds):
            self._round(t, last=t == rounds - 1)
        calls = np.full(self._batch.size, rounds * self._draws.workers)
        return Played(
            total_s=self._timeline.total_s,
            billed_s=self._billed_s + self._timeline.again_s,
            invocations=calls + self._timeline.again_calls,
            waits=np.zeros_like(calls),
            durations_s=self._timeline.durations_s,
            peak=self._timeline.peak,
        )

    def _round(self, t: int, last: bool) -> None:
        if t < self._setting.jobs:
            self._active.append(_Job(t, self._burst, self._private, self._groups))
        start_s, at_s = self._timeline.start_s, self._send(t)
        ready_s = start_s
        for job in self._active:
            job.send(start_s, at_s)
            ready_s = np.maximum(ready_s, job.saved_s(start_s))
        end_s = ready_s if last else self._timeline.capped_s(ready_s)
        lost = self._timeline.close(end_s, np.ones(end_s.size, dtype=np.bool_))
        if lost is not None:
            for job in self._active:
                job.lose(lost)
        if not self._setting.limits.harvest_late:
            for job in self._active:
                job.forget_after(end_s)
        if t >= self._delay:
            self._active.popleft()

    def _send(self, t: int) -> FloatArray:
        tasks = 1 if self._batch.loads is not None else len(self._active)
        loads = tasks * self._batch.task_load()
        shift_s, factor = self._setting.shift_s(loads), self._setting.factor(loads)
        self._billed_s += self._draws.worked_s[t].sum() * factor + self._draws.workers * shift_s
        delays_s = self._draws.delays_s[t] * factor[:, np.newaxis] + shift_s[:, np.newaxis]
        asked = np.ones_like(delays_s, dtype=np.bool_)
        return self._timeline.dispatch(delays_s, asked, self._draws.chains(t), shift_s)
