"""`sr-sgc` that closes each round as early as it may.

That is once job t-B decodes, and job t does or lacks at most lambda answers.
All columns share B, and W matters through s alone. Late answers count until their job's deadline (`harvest_late`), so
rounds are played with absolute instants. Read next: `multiplexed.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.evaluate.answers import answers_for
from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import Timeline
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column."""
    return _Repeat(batch, setting, draws, detail).play()


class _Repeat:
    def __init__(self, batch: Batch, setting: Setting, draws: Draws, detail: bool) -> None:
        self._setting, self._draws = setting, draws
        self._burst = int(batch.ints("burst")[0])
        assert (batch.ints("burst") == self._burst).all(), "one B at a time"
        self._spared = np.minimum(batch.ints("max_stragglers"), draws.workers)
        self._shift_s = setting.shift_s(batch.task_load())
        self._answers = answers_for(batch, draws)
        self._timeline = Timeline(setting, draws.workers, batch.size, watch=detail)
        self._decodes_s: FloatArray = np.full((setting.jobs, batch.size), np.inf)
        """(jobs, columns) when each job decodes, as far as is known"""
        self._closed_s = np.zeros(batch.size)
        """(columns,) when the last round closed"""
        self._billed_s = np.zeros(batch.size)
        self._calls = np.zeros(batch.size, dtype=np.int64)

    def play(self) -> Played:
        for t in range(self._setting.jobs + self._burst):
            self._round(t)
        return Played(
            total_s=np.where(self._timeline.stopped, np.inf, self._decodes_s.max(axis=0)),
            billed_s=self._billed_s + self._timeline.again_s,
            invocations=self._calls + self._timeline.again_calls,
            waits=np.zeros_like(self._calls),
            durations_s=self._timeline.durations_s,
            peak=self._timeline.peak,
        )

    def _round(self, t: int) -> None:
        start_s, jobs, old = self._timeline.start_s, self._setting.jobs, t - self._burst
        playing = (t < jobs) | (self._decodes_s.max(axis=0) > start_s)
        repeats = np.zeros((start_s.size, self._draws.workers), dtype=np.bool_)
        if old >= 0:
            repeats = self._answers.repeats(old, start_s)
        at_s = self._send(t, self._asked(t, repeats), playing)
        ready_s = start_s
        if old >= 0:
            self._decodes_s[old] = self._answers.add(old, np.where(repeats, at_s, np.inf))
            ready_s = np.maximum(ready_s, self._decodes_s[old])
        if t < jobs:
            own_s = np.where(repeats, np.inf, at_s)
            self._decodes_s[t] = self._answers.add(t, own_s)
            ready_s = np.maximum(ready_s, np.minimum(self._decodes_s[t], self._few_lacking_s(t)))
        lost = self._close(t, ready_s, playing)
        if t < jobs and lost is not None:
            self._answers.drop(t)
            self._decodes_s[t] = self._answers.add(t, np.where(lost, np.inf, own_s))
        if t < jobs and not self._setting.limits.harvest_late:
            self._decodes_s[t] = self._answers.forget_after(t, self._closed_s)
        self._answers.drop(old)

    def _asked(self, t: int, repeats: BoolArray) -> BoolArray:
        """(columns, n) whom round t invokes: past the last job only those that repeat, or all if any does."""
        if t < self._setting.jobs:
            return np.ones_like(repeats)
        if not self._setting.limits.invoke_idle:
            return repeats
        some: BoolArray = np.any(repeats, axis=1, keepdims=True)
        return np.repeat(some, self._draws.workers, axis=1)

    def _send(self, t: int, asked: BoolArray, playing: BoolArray) -> FloatArray:
        shift_s = self._shift_s[:, np.newaxis]
        asked = asked & playing[:, np.newaxis]
        self._billed_s += np.where(asked, self._draws.worked_s[t] + shift_s, 0.0).sum(axis=1)
        self._calls += asked.sum(axis=1)
        return self._timeline.dispatch(self._draws.delays_s[t] + shift_s, asked, self._draws.chains(t), self._shift_s)

    def _few_lacking_s(self, t: int) -> FloatArray:
        """(columns,) when at most lambda answers of round t are missing."""
        last = self._draws.workers - 1 - self._spared
        at_s = self._timeline.start_s + (self._draws.sorted_s[t][np.maximum(last, 0)] + self._shift_s)
        return np.where(last < 0, -np.inf, at_s)

    def _close(self, t: int, ready_s: FloatArray, playing: BoolArray) -> BoolArray | None:
        """A round that decodes the last job missing closes at once, whatever is in flight. Returns: whose answers to it
        will not come, None for none."""
        end_s = self._timeline.capped_s(ready_s)
        if t >= self._setting.jobs - 1:
            all_s = np.maximum(self._decodes_s.max(axis=0), self._timeline.start_s)
            end_s = np.minimum(end_s, all_s)
        self._closed_s = end_s
        return self._timeline.close(end_s, playing)
