"""What each class of parameter sets did in each round, and what that makes for each of its columns.

A class has one sequence of decisions; its columns differ in load, which moves each round's length linearly. So a run's
total is one number per class plus one per class times the column's load: nothing here is of size columns x rounds,
unless the single durations are asked for. Knows no scheme. Read next: `game.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import PlainRounds, Played, lay_out
from gradmux.orchestrator.evaluate.published.classes import Classes
from gradmux.orchestrator.evaluate.published.mu_rule import Closing
from gradmux.orchestrator.evaluate.published.unions import with_room
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.evaluate.timeline import limited
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What was invoked in one round, by class."""

    calls: IntArray
    """(classes,) invocations"""
    work_s: FloatArray
    """(classes,) sum of their delays, before any load"""
    tasks: IntArray
    """(classes,) tasks that each of them has: its load is this many times the column's task load"""


@dataclass(frozen=True, slots=True, eq=False)
class Plays:
    """Which rounds are played, and by whom."""

    rounds: IntArray
    """(columns,) rounds that are played"""
    asked: Mapping[int, BoolArray] = field(default_factory=dict)
    """round -> (columns, n) which workers are invoked, for the rounds in which not all are"""


@dataclass(frozen=True, slots=True, eq=False)
class LoadShift:
    """What loads add to delays: per_task_s for each task, and a constant."""

    per_task_s: FloatArray
    """(columns,) seconds"""
    constant_s: float

    @classmethod
    def for_batch(cls, batch: Batch, setting: Setting) -> LoadShift:
        """slope * (tasks * task load - base load)."""
        slope_s = setting.load.slope_s
        return cls(slope_s * batch.task_load(), -slope_s * setting.load.base_load)

    def of(self, tasks: IntArray, columns: IntArray) -> FloatArray:
        """Seconds, for invocations of `tasks` tasks in these columns."""
        return tasks * self.per_task_s[columns] + self.constant_s


class Ledger:
    """All that happened, by class."""

    def __init__(self, rounds: int, classes: int) -> None:
        self._by_round = np.zeros((3, rounds, classes))
        self._sums = np.zeros((4, classes))

    def note(self, t: int, closing: Closing, asked: Asked, waited: BoolArray) -> None:
        """Round t, for all classes that there are."""
        self._by_round[:, t, : waited.size] = closing.base_s, closing.slope, asked.tasks
        self._sums += waited, asked.calls, asked.calls * asked.tasks, asked.work_s

    def fork(self, parents: IntArray, rows: int) -> None:
        """New classes, behind the `rows` there are, with the past of these."""
        self._by_round = with_room(self._by_round, rows + parents.size, axis=2)
        self._by_round[:, :, rows : rows + parents.size] = self._by_round[:, :, parents]
        self._sums = np.concatenate([self._sums, self._sums[:, parents]], axis=1)

    def settle_up(
        self, classes: Classes, shift: LoadShift, plays: Plays, setting: Setting, draws: Draws, *, detail: bool
    ) -> Played:
        """The results by column; `detail` asks for single durations and for what was in flight."""
        waits, calls, task_calls, work_s = self._sums
        total_s, durations_s, peak = self._totals_s(classes, shift), None, None
        fixed_s = classes.spread(work_s + shift.constant_s * calls)
        billed_s = fixed_s + classes.spread(task_calls) * shift.per_task_s
        invocations = classes.spread(calls.astype(np.int64))
        if detail or limited(setting) or draws.failing:
            timeline = lay_out(self._rounds(classes, shift, plays), setting, draws)
            total_s, durations_s, peak = timeline.total_s, timeline.durations_s, timeline.peak
            billed_s, invocations = billed_s + timeline.again_s, invocations + timeline.again_calls
        return Played(
            total_s=total_s,
            billed_s=billed_s,
            invocations=invocations,
            waits=classes.spread(waits.astype(np.int64)),
            durations_s=durations_s,
            peak=peak,
        )

    def _totals_s(self, classes: Classes, shift: LoadShift) -> FloatArray:
        """(columns,) sum of all rounds."""
        base_s, slope, tasks = self._by_round[:, :, : classes.count]
        fixed_s = base_s.sum(axis=0) + shift.constant_s * slope.sum(axis=0)
        by_load = np.einsum("tc,tc->c", slope, tasks)
        return classes.spread(fixed_s) + classes.spread(by_load) * shift.per_task_s

    def _rounds(self, classes: Classes, shift: LoadShift, plays: Plays) -> PlainRounds:
        """Each round of each column."""
        base_s, slope, tasks = (classes.spread(of[:, : classes.count].T).T for of in self._by_round)
        shift_s = tasks * shift.per_task_s + shift.constant_s
        return PlainRounds(base_s + slope * shift_s, shift_s, plays.rounds, plays.asked)
