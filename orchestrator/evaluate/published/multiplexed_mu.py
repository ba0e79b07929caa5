"""`m-sgc` under the papers' wait rule: what closes a round is its straggler model alone, never what is in which slot.

A pattern inside the model decodes every job in time (so the scheme never asks for more), hence neither the code nor
late answers matter here; loads do, through the cut. Read next: `repeat_mu.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.published.classes import opens
from gradmux.orchestrator.evaluate.published.game import Game
from gradmux.orchestrator.evaluate.published.ledger import Asked, Ledger, LoadShift, Plays
from gradmux.orchestrator.evaluate.published.models import Arbitrary, Bursty, Model
from gradmux.orchestrator.evaluate.published.mu_rule import Cut
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.policies import Mu


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column; columns should come in order of (W, B, lambda)."""
    return _Multiplexed(batch, setting, draws).play(detail)


class _Multiplexed:
    def __init__(self, batch: Batch, setting: Setting, draws: Draws) -> None:
        wait, most = setting.wait, batch.ints("max_stragglers")
        assert isinstance(wait, Mu)
        self._batch, self._setting, self._draws = batch, setting, draws
        self._cut, self._shift = Cut(draws, wait.mu), LoadShift.for_batch(batch, setting)
        self._delay = batch.delay()
        self._rounds = setting.jobs + int(self._delay.max())
        self._game = Game(wait, opens([batch.ints("window"), batch.ints("burst")], [most, batch.task_load()]), most)
        first = self._game.classes.first
        self._ledger = Ledger(self._rounds, first.size)
        self._game.start(_models(batch.take(first), wait.straggler_model), self._ledger.fork)

    def play(self, detail: bool) -> Played:
        for t in range(self._rounds):
            self._round(t)
        plays = Plays(self._setting.jobs + self._delay)
        classes = self._game.classes
        return self._ledger.settle_up(classes, self._shift, plays, self._setting, self._draws, detail=detail)

    def _round(self, t: int) -> None:
        game, draws = self._game, self._draws
        game.settle(draws.order[t], lambda columns, _: self._late(t, columns))
        first = game.classes.first
        playing = t < self._setting.jobs + self._delay[first]
        asked = Asked(draws.workers * playing, draws.worked_s[t].sum() * playing, self._slots(t, first))
        closing = self._cut.closing(t, game.late, game.let_go).only(playing)
        self._ledger.note(t, closing, asked, game.refused & playing)

    def _late(self, t: int, columns: IntArray) -> IntArray:
        return self._cut.late(t, self._shift.of(self._slots(t, columns), columns))

    def _slots(self, t: int, columns: IntArray) -> IntArray:
        """Slots of round t that have a job to serve: the first and the last T rounds have fewer."""
        if self._batch.loads is not None:
            return np.ones_like(columns)
        oldest = np.minimum(t, self._delay[columns])
        newest = max(t - self._setting.jobs + 1, 0)
        slots: IntArray = np.maximum(oldest - newest + 1, 0)
        return slots


def _models(batch: Batch, name: str) -> Sequence[Model]:
    """The straggler models that `name` means, a row for each column of `batch`."""
    burst, window = batch.ints("burst"), batch.ints("window")
    models: list[Model] = []
    if name in ("bursty", "either"):
        models.append(Bursty(burst, window, batch.workers))
    if name in ("arbitrary", "either"):
        models.append(Arbitrary(burst, batch.slots(), batch.workers))
    return models
