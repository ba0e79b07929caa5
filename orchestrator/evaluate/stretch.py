"""`stretch`: jobs of up to K steps, whole batches on each copy. A small event simulation per parameter set.

Each turn dispatches one job in every column: at the first instant at which some model is ready and its copies fit under
the concurrency, the model that lags most first. Columns differ in K, and so in the number of their jobs: those that
are through sit the rest out. Copies that go out when one is late are `simulate.simulate`'s: q = 1 is evaluated.
Read next: `pipeline.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.in_flight import InFlight
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every job of every column; `durations_s` are by job, in the order of dispatch, from there to its first answer.

    Raises: ConfigError when a column has copies invoked again.
    """
    if (np.asarray(batch.values["quantile"]) < 1).any():
        raise ConfigError("stretch is evaluated with quantile = 1 only (no further copies): use simulate")
    return _Stretches(batch, setting, draws, detail).play()


class _Stretches:
    def __init__(self, batch: Batch, setting: Setting, draws: Draws, detail: bool) -> None:
        jobs = setting.jobs
        each = -(-jobs // setting.models)
        fewer = np.arange(setting.models) < setting.models * each - jobs
        self._batch, self._setting, self._draws = batch, setting, draws
        self._ends = each
        self._next: IntArray = np.tile(fewer.astype(np.int64), (batch.size, 1))
        """(columns, models) steps that have begun"""
        self._ready_s: FloatArray = np.where(self._next < each, 0.0, np.inf)
        """(columns, models); inf: that model has no more steps"""
        self._now_s = np.zeros(batch.size)
        limited = setting.limits.concurrency is not None
        self._running = InFlight(batch.size) if detail or limited else None

    def play(self) -> Played:
        size, copies = self._batch.size, self._draws.workers
        durations: list[FloatArray] = []
        billed_s, total_s = np.zeros(size), np.zeros(size)
        calls = np.zeros(size, dtype=np.int64)
        while (live := self._live()).any():
            t = len(durations)
            start_s, model = self._take(live)
            loads = self._begin(model, live)
            shift_s, factor = self._setting.shift_s(loads), self._setting.factor(loads)
            takes_s = np.where(live, self._draws.sorted_s[t][0] * factor + shift_s, 0.0)
            at_s, again_s, again = self._arrivals(t, start_s, shift_s, factor, start_s + takes_s)
            if self._running is not None:
                self._running.drop(start_s)
                self._running.add(np.where(live[:, np.newaxis], at_s, -np.inf))
            self._ended(model, start_s + takes_s, live)
            total_s = np.maximum(total_s, np.where(live, start_s + takes_s, 0.0))
            billed_s += np.where(live, self._draws.worked_s[t].sum() * factor + copies * shift_s + again_s, 0.0)
            calls += np.where(live, copies + again, 0)
            durations.append(takes_s)
        return Played(
            total_s=total_s,
            billed_s=billed_s,
            invocations=calls,
            waits=np.zeros_like(calls),
            durations_s=np.array(durations),
            peak=None if self._running is None else self._running.peak,
        )

    def _arrivals(
        self, t: int, start_s: FloatArray, shift_s: FloatArray, factor: FloatArray, decoded_s: FloatArray
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """(columns, copies) when each copy is over; (columns,) what failing calls add to the bill, and to the calls."""
        at_s = start_s[:, np.newaxis] + (self._draws.delays_s[t] * factor[:, np.newaxis] + shift_s[:, np.newaxis])
        chains = self._draws.chains(t)
        if chains is None:
            return at_s, np.zeros(start_s.size), np.zeros(start_s.size, dtype=np.int64)
        over = chains.over(start_s, shift_s, decoded_s)
        at_s[:, chains.workers] = over.at_s
        took_s = over.at_s - start_s[:, np.newaxis] - shift_s[:, np.newaxis]
        return at_s, took_s.sum(axis=1), (over.sent - 1).sum(axis=1)

    def _live(self) -> BoolArray:
        """(columns,) has a model steps left?"""
        live: BoolArray = np.any(np.isfinite(self._ready_s), axis=1)
        return live

    def _take(self, live: BoolArray) -> tuple[FloatArray, IntArray]:
        """(columns,) when the next job goes out, and of which model: as `pipeline.py` has it.

        One that was waiting goes before one that becomes ready at that very instant: its model has not stepped yet.
        """
        free_s: FloatArray | float = -np.inf
        concurrency = self._setting.limits.concurrency
        if self._running is not None and concurrency is not None:
            free_s = self._running.at_most(concurrency - self._draws.workers)
        start_s = np.maximum(np.maximum(self._now_s, free_s), self._ready_s.min(axis=1))
        start_s = np.where(live, start_s, self._now_s)
        waiting = self._ready_s < start_s[:, np.newaxis]
        waiting |= ~waiting.any(axis=1, keepdims=True) & (self._ready_s <= start_s[:, np.newaxis])
        models = self._next.shape[1]
        turn = np.where(waiting, self._next * models + np.arange(models), self._ends * models)
        self._now_s = start_s
        return start_s, turn.argmin(axis=1)

    def _begin(self, model: IntArray, live: BoolArray) -> FloatArray:
        """(columns,) the load of the job of this model that begins: its steps, unless loads are fixed."""
        columns = np.arange(model.size)
        steps = np.minimum(self._batch.ints("steps"), self._ends - self._next[columns, model])
        self._next[columns, model] += np.where(live, steps, 0)
        return steps.astype(np.float64) if self._batch.loads is None else self._batch.loads

    def _ended(self, model: IntArray, at_s: FloatArray, live: BoolArray) -> None:
        columns = np.flatnonzero(live)
        over = self._next[columns, model[columns]] >= self._ends
        self._ready_s[columns, model[columns]] = np.where(over, np.inf, at_s[columns])
