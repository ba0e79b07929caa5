"""`backup`: uncoded, and what is missing is invoked once more; the first answer of each task counts.

The second attempts' delays are the ones that the loop would draw. They start at once where the concurrency has room
for all of them; where it has not, that round of that column is played event by event. Read next: `evaluator.py`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import Timeline
from gradmux.orchestrator.schemes.scheme import FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column."""
    return _Backup(batch, setting, draws, detail).play()


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """One round of all columns; workers in order of arrival."""

    at_s: FloatArray
    """(columns, n) the first attempts' answers"""
    again_s: FloatArray
    """(columns,) when what is missing is invoked again"""
    late: IntArray
    """(columns,) how many are missing then: the last ones"""
    second_s: FloatArray
    """(columns, n) what second attempts take"""


class _Backup:
    def __init__(self, batch: Batch, setting: Setting, draws: Draws, detail: bool) -> None:
        self._setting, self._draws = setting, draws
        self._slack = np.asarray(batch.values["mu"], dtype=np.float64)
        self._enough: IntArray = np.ceil(np.asarray(batch.values["share"]) * draws.workers).astype(np.int64)
        """(columns,) answers after which the missing tasks are invoked again"""
        self._shift_s = setting.shift_s(batch.task_load())
        self._timeline = Timeline(setting, draws.workers, batch.size, watch=detail)
        self._billed_s = setting.jobs * draws.workers * self._shift_s + draws.delays_s[: setting.jobs].sum()
        self._calls = np.full(batch.size, setting.jobs * draws.workers)

    def play(self) -> Played:
        for t in range(self._setting.jobs):
            self._round(t)
        return Played(
            total_s=self._timeline.total_s,
            billed_s=self._billed_s,
            invocations=self._calls,
            waits=np.zeros_like(self._calls),
            durations_s=self._timeline.durations_s,
            peak=self._timeline.peak,
        )

    def _round(self, t: int) -> None:
        this, last = self._send(t), t == self._setting.jobs - 1
        workers = self._draws.workers
        missing = np.arange(workers) >= workers - this.late[:, np.newaxis]
        tight = np.flatnonzero(self._timeline.room_s(this.again_s) < this.late)
        missing[tight] = False
        sent_s = np.where(missing, this.again_s[:, np.newaxis], np.inf)
        self._timeline.more(this.again_s, sent_s + this.second_s)
        ready_s = np.minimum(this.at_s, sent_s + this.second_s).max(axis=1)
        end_s = ready_s if last else self._timeline.capped_s(ready_s)
        for column in tight.tolist():
            end_s[column], sent_s[column] = self._in_turn(t, this, column, last)
        if tight.size:
            self._timeline.more(this.again_s, np.where(missing, np.inf, sent_s + this.second_s))
        self._calls += np.isfinite(sent_s).sum(axis=1)
        self._billed_s += np.where(np.isfinite(sent_s), this.second_s, 0.0).sum(axis=1)
        self._timeline.close(end_s, np.ones(end_s.size, dtype=np.bool_))

    def _send(self, t: int) -> _Round:
        workers, order, start_s = self._draws.workers, self._draws.order[t], self._timeline.start_s
        delays_s = self._draws.sorted_s[t] + self._shift_s[:, np.newaxis]
        at_s = self._timeline.dispatch(delays_s, np.ones_like(delays_s, dtype=np.bool_))
        by_time_s = start_s + (1.0 + self._slack) * (at_s[:, 0] - start_s)
        by_share_s = at_s[np.arange(start_s.size), self._enough - 1]
        again_s = np.minimum(by_time_s, by_share_s)
        late: IntArray = (at_s > again_s[:, np.newaxis]).sum(axis=1)
        most = int(late.max())
        second_s = np.zeros_like(at_s)
        second_s[:, workers - most :] = self._draws.second_s(t, order[workers - most :]) + self._shift_s[:, np.newaxis]
        return _Round(at_s, again_s, late, second_s)

    def _in_turn(self, t: int, this: _Round, column: int, last: bool) -> tuple[float, FloatArray]:
        """When one column's round closes whose second attempts wait for room, and when each was sent (inf: never)."""
        workers, order, again_s = self._draws.workers, self._draws.order[t], this.again_s[column]
        places = np.arange(workers - int(this.late[column]), workers)
        queue = places[np.argsort(order[places])].tolist()
        first = [(float(this.at_s[column, place]), int(place)) for place in places]
        older = Counter(self._timeline.running_s(column)) - Counter(at_s for at_s, _ in first)
        limits = self._setting.limits
        assert limits.concurrency is not None
        cap = None if last or limits.in_flight_cap is None else limits.in_flight_cap * workers
        running = first + [(at_s, -1) for at_s in older.elements()]
        end_s, sent = in_turn(running, queue, this.second_s[column], again_s, limits.concurrency, cap)
        sent_s = np.full(workers, np.inf)
        sent_s[list(sent)] = list(sent.values())
        return end_s, sent_s


def in_turn(
    running: list[tuple[float, int]],
    queue: Sequence[int],
    takes_s: FloatArray,
    now_s: float,
    concurrency: int,
    cap: float | None,
) -> tuple[float, dict[int, float]]:
    """Plays one round from the instant at which its second attempts are wanted, which go out as there is room.

    `running`: (arrival, task or -1) of what is in flight; `queue`: tasks to invoke again. Returns when all tasks are
    answered and no more than `cap` invocations are running, and when each second attempt went out.
    """
    heapq.heapify(running)
    waiting, sent = list(reversed(queue)), {}
    missing = {task for _, task in running if task >= 0}
    while missing or (cap is not None and len(running) > cap):
        while waiting and len(running) < concurrency:
            task = waiting.pop()
            sent[task] = now_s
            heapq.heappush(running, (now_s + float(takes_s[task]), task))
        now_s, task = heapq.heappop(running)
        missing.discard(task)
    return now_s, sent
