"""One round after the other under the papers' wait rule, for classes of parameter sets.

In each round: how many are late at the cut, does the straggler model let them go, and if not, how many fewer it would.
Classes part whenever their columns come to differ in one of these. Knows no scheme: `multiplexed_mu.py` and
`repeat_mu.py` say what is late and what else holds a round up. Read next: those two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from gradmux.orchestrator.evaluate import bits
from gradmux.orchestrator.evaluate.bits import Bits, IntArray
from gradmux.orchestrator.evaluate.published.classes import Classes, Decide, Fork
from gradmux.orchestrator.evaluate.published.models import AnyOf, Model
from gradmux.orchestrator.evaluate.published.mu_rule import most_admitted
from gradmux.orchestrator.policies import Mu
from gradmux.orchestrator.schemes.scheme import BoolArray

Allowed: TypeAlias = Callable[[Bits, IntArray], BoolArray]
"""(late sets, class of each) -> can the scheme do without them? The fewer, the better."""
Asked: TypeAlias = Callable[[], Bits]
"""who is invoked at all, a set for each class"""


class _Table:
    """The last k of a round's order of arrival, as sets."""

    def __init__(self, suffixes: Bits, asked: Asked | None) -> None:
        self._suffixes, self._asked = suffixes, asked

    def sets(self, k: IntArray, of: IntArray | None = None) -> tuple[Bits, IntArray]:
        """The last k of the workers that were asked, for classes `of` (None: each once); and these classes."""
        rows = np.arange(k.size) if of is None else of
        sets = self._suffixes.take(k, axis=0)
        return (sets if self._asked is None else sets & self._asked().take(rows, axis=0)), rows


class Game:
    """Classes of columns, their straggler models, and what was decided in the current round."""

    def __init__(self, wait: Mu, opens: BoolArray, most: IntArray) -> None:
        """`opens` (columns,): where classes begin; `most` (columns,): lambda. Call `start` before the first round."""
        self._wait, self._most = wait, most
        self._forks: list[Fork] = []
        self.classes = Classes(opens)
        self.late: IntArray = np.zeros(self.classes.count, dtype=np.int64)
        """(classes,) late at the cut"""
        self.let_go: IntArray = self.late
        """(classes,) of these, given up: the round closed without them"""
        self.refused: BoolArray = np.zeros(self.classes.count, dtype=np.bool_)
        """(classes,) did the model refuse those that were late at the cut?"""
        self._stays = self.refused
        """(classes,) did the round go on after the cut?"""

    def start(self, models: Sequence[Model], *forks: Fork) -> None:
        """The straggler models, by class, and whatever else keeps state by class."""
        self._model = AnyOf(models, self.classes.count)
        self._forks = [self._model.fork, *forks]

    def settle(self, order: IntArray, late: Decide, allowed: Allowed | None = None, asked: Asked | None = None) -> Bits:
        """Decides and closes one round with order of arrival `order` (n,); `late` says how many missed the cut.

        `asked`: who is invoked at all, where that is not everybody. Returns who is given up, a set for each class.
        """
        table = _Table(bits.suffixes(order), asked)
        self.late = self.let_go = self._agree(late)
        self.refused = self._agree_on_models(table) == 0
        self._stays = self.refused
        if allowed is not None:
            self._stays = np.logical_or(self.refused, ~allowed(*table.sets(self.late)))
        if self._stays.any():
            self.let_go = self._agree(lambda columns, of: self._fewer(table, allowed, columns, of))
            if self._model.several:
                self._agree_on_models(table)
        gone, _ = table.sets(self.let_go)
        self._model.commit(gone, self._most[self.classes.first])
        return gone

    def _agree_on_models(self, table: _Table) -> IntArray:
        """(classes,) a code for which models admit those let go, 0 for none."""

        def code(columns: IntArray, of: IntArray) -> IntArray:
            admits = self._model.admits(*table.sets(self.let_go[of], of), self._most[columns])
            return np.left_shift(1, np.arange(len(admits))) @ admits

        return self._agree(code)

    def _fewer(self, table: _Table, allowed: Allowed | None, columns: IntArray, of: IntArray) -> IntArray:
        """(columns,) how many are let go where the round goes on after the cut; elsewhere all that are late."""
        let_go = self.late[of]
        if self._wait.wait_out == "all":
            let_go = np.where(self.refused[of], 0, let_go)
            places = np.flatnonzero(self._stays[of] & ~self.refused[of])
        else:
            places = np.flatnonzero(self._stays[of])

        def fits(k: IntArray, at: IntArray) -> BoolArray:
            sets, rows = table.sets(k, of[places[at]])
            admitted = np.logical_or.reduce(self._model.admits(sets, rows, self._most[columns[places[at]]]))
            return admitted if allowed is None else np.logical_and(admitted, allowed(sets, rows))

        let_go[places] = most_admitted(fits, let_go[places])
        return let_go

    def _agree(self, decide: Decide) -> IntArray:
        return self.classes.agree(decide, self._fork)

    def _fork(self, parents: IntArray, rows: int) -> None:
        for fork in self._forks:
            fork(parents, rows)
        self.late, self.let_go = (np.append(state, state[parents]) for state in (self.late, self.let_go))
        self.refused, self._stays = (np.append(state, state[parents]) for state in (self.refused, self._stays))
