"""`sr-sgc` under the papers' wait rule, where late answers do not count (`harvest_late = false`), as published.

In round t the workers V that have nothing to show for job t-B are known; if they are more than s, some repeat. What a
class does depends on (B, W, s) and, through the straggler model, on lambda. Read next: `multiplexed.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradmux.orchestrator.evaluate import bits
from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import Bits, IntArray
from gradmux.orchestrator.evaluate.cover import Cover
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.published.classes import opens
from gradmux.orchestrator.evaluate.published.game import Game
from gradmux.orchestrator.evaluate.published.ledger import Asked, Ledger, LoadShift, Plays
from gradmux.orchestrator.evaluate.published.models import Model, PerRound, PublishedBursty, Repeats
from gradmux.orchestrator.evaluate.published.mu_rule import Closing, Cut
from gradmux.orchestrator.evaluate.published.unions import Past
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.schemes.facts import group_count
from gradmux.orchestrator.schemes.scheme import BoolArray, FloatArray


def play(batch: Batch, setting: Setting, draws: Draws, *, detail: bool) -> Played:
    """Every round of every column; columns should come in order of (W, B, lambda)."""
    return _Repeat(batch, setting, draws).play(detail)


class _Repeat:
    def __init__(self, batch: Batch, setting: Setting, draws: Draws) -> None:
        assert isinstance(setting.wait, Mu)
        self._batch, self._setting, self._draws = batch, setting, draws
        self._cut, self._shift = Cut(draws, setting.wait.mu), LoadShift.for_batch(batch, setting)
        self._burst, self._tolerance = batch.ints("burst"), batch.tolerance()
        self._rounds = setting.jobs + int(self._burst.max())
        most = batch.ints("max_stragglers")
        same = [batch.ints("window"), self._burst, self._tolerance]
        self._game = Game(setting.wait, opens(same, [most, batch.task_load()]), most)
        first = self._game.classes.first
        self._ledger = Ledger(self._rounds, first.size)
        self._repeats = Repeats(first.size, batch.workers)
        """who works on job t-B in the current round t"""
        self._lacking = Past(int(self._burst.max()), batch.workers, first.size)
        """by round, who has no answer for the job of that round from it: late, or at work on another"""
        models = _models(batch.take(first), setting.wait.straggler_model, self._repeats)
        self._game.start(models, self._ledger.fork, self._lacking.fork, self._repeats.fork)
        self._asked: dict[int, BoolArray] = {}

    def play(self, detail: bool) -> Played:
        for t in range(self._rounds):
            self._choose_repeats(t)
            if t < self._setting.jobs or self._setting.limits.invoke_idle:
                self._round(t)
            else:
                self._repeats_alone(t)
        plays = Plays(self._setting.jobs + self._burst, self._asked)
        classes = self._game.classes
        return self._ledger.settle_up(classes, self._shift, plays, self._setting, self._draws, detail=detail)

    # --- who repeats -------------------------------------------------------------------------------

    def _choose_repeats(self, t: int) -> None:
        """The fewest workers that complete job t-B, in the classes where it lacks answers."""
        first = self._game.classes.first
        burst, tolerance = self._burst[first], self._tolerance[first]
        lacking = self._lacking.ago(burst)
        excess = bits.size(lacking) - tolerance
        rows = np.flatnonzero((excess > 0) & (t < self._setting.jobs + burst))
        self._repeats.now = np.zeros_like(lacking)
        if self._batch.code == "cyclic":
            self._repeats.now[rows] = bits.lowest(lacking[rows], excess[rows])
            return
        for b in np.unique(burst[rows]):
            same = rows[burst[rows] == b]
            line = self._draws.lineup(t - int(b))
            self._repeats.now[same] = self._lowest_of_open(line, lacking[same], tolerance[same])

    def _lowest_of_open(self, line: IntArray, lacking: Bits, tolerance: IntArray) -> Bits:
        """The lowest worker of each group of a fractional code in which every worker is lacking."""
        workers = self._batch.workers
        cover = Cover(workers, group_count(workers, tolerance))
        open_ = cover.by_group(bits.unpack(lacking, workers)[:, line])
        return bits.pack(cover.lowest_of(open_, line))

    # --- rounds ------------------------------------------------------------------------------------

    def _can_spare(self, late: Bits, of: IntArray) -> BoolArray:
        """Does job t-B decode without these? Each who repeats is needed."""
        return ~bits.meet(late, self._repeats.now.take(of, axis=0))

    def _round(self, t: int) -> None:
        """All workers are invoked; past the last job only if a worker repeats."""
        game, draws = self._game, self._draws
        idle = t >= self._setting.jobs

        def late(columns: IntArray, of: IntArray) -> IntArray:
            found = self._cut.late(t, self._shift.of(np.ones_like(columns), columns))
            return found * (bits.size(self._repeats.now[of]) > 0) if idle else found

        gone = game.settle(draws.order[t], late, self._can_spare)
        playing = bits.size(self._repeats.now) > 0 if idle else np.ones(game.classes.count, dtype=np.bool_)
        asked = Asked(draws.workers * playing, draws.worked_s[t].sum() * playing, np.ones(playing.size, dtype=np.int64))
        self._ledger.note(t, self._cut.closing(t, game.late, game.let_go).only(playing), asked, game.refused)
        self._lacking.push(gone | self._repeats.now)
        if idle:
            asked_all = np.broadcast_to(playing[:, np.newaxis], (playing.size, draws.workers))
            self._asked[t] = game.classes.spread(asked_all)

    def _repeats_alone(self, t: int) -> None:
        """Past the last job only those who repeat are invoked, and the round waits for them all."""
        game, draws = self._game, self._draws
        delays_s = draws.delays_s[t]

        def fastest_s(of: IntArray) -> FloatArray:
            repeating = bits.unpack(self._repeats.now.take(of, axis=0), draws.workers)
            found: FloatArray = np.where(repeating, delays_s, delays_s.max()).min(axis=1)
            return found

        def late(columns: IntArray, of: IntArray) -> IntArray:
            return self._cut.late(t, self._shift.of(np.ones_like(columns), columns), fastest_s(of))

        game.settle(draws.order[t], late, self._can_spare, asked=lambda: self._repeats.now)
        asked = bits.unpack(self._repeats.now, draws.workers)
        playing = bits.size(self._repeats.now) > 0
        last_s = np.where(asked, delays_s, 0.0).max(axis=1)
        closing = Closing(last_s, playing.astype(np.float64))
        calls = Asked(asked.sum(axis=1), asked @ draws.worked_s[t], np.ones(playing.size, dtype=np.int64))
        self._ledger.note(t, closing, calls, game.refused)
        self._lacking.push(self._repeats.now)
        self._asked[t] = game.classes.spread(asked)


def _models(batch: Batch, name: str, repeats: Repeats) -> Sequence[Model]:
    """The straggler models that `name` means, a row for each column of `batch`."""
    models: list[Model] = []
    if name in ("bursty", "either"):
        burst, window = batch.ints("burst"), batch.ints("window")
        models.append(PublishedBursty(burst, window, batch.tolerance(), repeats, batch.workers))
    if name in ("arbitrary", "either"):
        models.append(PerRound(batch.tolerance()))
    return models
