"""How long runs take for thousands of parameter sets: one call for a batch of any scheme.

Covered exactly (every round's duration equals the loop's): `uncoded` and `gc` under both wait policies; `m-sgc` under
both; `sr-sgc` under both, under the mu rule with `harvest_late = false`; `backup` under `Earliest`; `pipeline` and
`stretch` (without backups), to which the wait policy does not matter. With concurrency and in-flight cap, late answers,
loads fixed or by assignment, delays that grow with the load by a slope or in proportion (`m-sgc` under the mu rule by a
slope only), calls that fail (but not under `backup`, nor with proportion), and any number of workers up to the
profile's. All else is `simulate.simulate`'s. Read next: `families.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray, words_for
from gradmux.orchestrator.evaluate.chance import Chance
from gradmux.orchestrator.evaluate.draws import Draws
from gradmux.orchestrator.evaluate.families import FAMILIES, Play, Together, one_load, play_of, uncovered
from gradmux.orchestrator.evaluate.played import Played
from gradmux.orchestrator.evaluate.setting import Setting
from gradmux.orchestrator.policies import Mu

CELLS = 1 << 20
"""numbers in one working array, about: columns are played in chunks, so that memory stays bounded and in cache"""
TABLE_CELLS = 4 * CELLS
"""delays that are kept in order of arrival, for all n"""


class Evaluator:
    """Evaluates batches in one setting; what is drawn for one n serves all of them."""

    def __init__(self, setting: Setting, chance: Chance | None = None) -> None:
        """`chance`: what was drawn for another profile of the same width with the same seed, to spare time."""
        self.setting = setting
        self._chance = chance or Chance(setting.delays_s.shape[1], setting.seed)
        self._draws: dict[int, Draws] = {}

    def play(self, batch: Batch, *, detail: bool = False) -> Played:
        """Every column of the batch; `detail` asks for single durations and for what was in flight.

        Raises: ConfigError for what is not covered, or does not fit the profile or the concurrency.
        """
        family, setting = self._family(batch), self._setting_for(batch)
        parts = [
            (columns, family(batch.take(columns), setting, self._draws_for(batch, columns), detail=detail))
            for columns in self._chunks(batch)
        ]
        return self._in_its_time(batch, Played.gather(parts, batch.size))

    def play_all(self, batches: Sequence[Batch], *, detail: bool = False) -> list[Played]:
        """Several batches, in their order; those of `pipeline` many at once, which is faster."""
        found: dict[int, Played] = {}
        for scheme, family in FAMILIES.items():
            if family.together is not None:
                places = [place for place, batch in enumerate(batches) if batch.scheme == scheme and batch.size]
                found |= self._play_together(family.together, batches, places, detail)
        return [found[i] if i in found else self.play(batch, detail=detail) for i, batch in enumerate(batches)]

    def _play_together(
        self, together: Together, batches: Sequence[Batch], places: Sequence[int], detail: bool
    ) -> dict[int, Played]:
        """Place -> how the batch there did, of these places."""
        found: dict[int, Played] = {}
        for group in self._together(batches, places):
            parts = [(batches[place], self._ready(batches[place])) for place in group]
            played = together(parts, self._setting_for(parts[0][0]), detail=detail)
            found |= {place: self._in_its_time(batches[place], each) for place, each in zip(group, played, strict=True)}
        return found

    def _setting_for(self, batch: Batch) -> Setting:
        scales = self.setting.load.scales and one_load(batch)
        return self.setting.unscaled() if scales else self.setting

    def _in_its_time(self, batch: Batch, played: Played) -> Played:
        if self.setting.load.scales and one_load(batch):
            played = played.times(self.setting.factor(batch.task_load()))
        return played.with_stops()

    def _together(self, batches: Sequence[Batch], places: Sequence[int]) -> Iterator[list[int]]:
        """`places` of batches in groups whose tables stay small, those of like n together."""
        group: list[int] = []
        for place in sorted(places, key=lambda place: batches[place].workers):
            if group and (len(group) + 1) * batches[place].workers * self.setting.jobs > TABLE_CELLS:
                yield group
                group = []
            group.append(place)
        if group:
            yield group

    def _ready(self, batch: Batch) -> Draws:
        self._family(batch)
        return self._draws_for(batch, np.arange(batch.size))

    def _family(self, batch: Batch) -> Play:
        by_mu, limits = isinstance(self.setting.wait, Mu), self.setting.limits
        play = play_of(batch.scheme, by_mu=by_mu)
        if play is None:
            known = ", ".join(name for name in FAMILIES if play_of(name, by_mu=by_mu) is not None)
            raise ConfigError(f"{batch.scheme} is not evaluated with this wait policy (only {known}): use simulate")
        if limits.concurrency is not None and limits.concurrency < batch.workers:
            raise ConfigError(
                f"{batch.scheme} invokes {batch.workers} workers a round, but concurrency is {limits.concurrency}"
            )
        if limits.invoke_idle and batch.loads is None:
            raise ConfigError("invoke_idle is evaluated with fixed loads only: give loads")
        if reason := uncovered(batch.scheme, self.setting, fixed_loads=batch.loads is not None):
            raise ConfigError(reason)
        if (batch.chunks() == 0).any() and not (limits.invoke_idle and by_mu):
            raise ConfigError(f"{batch.scheme} with lambda = n leaves workers idle and is not evaluated: use simulate")
        return play

    def _draws_for(self, batch: Batch, columns: IntArray) -> Draws:
        rounds = self.setting.jobs + int(batch.delay()[columns].max())
        draws = self._draws.get(batch.workers)
        if draws is None:
            self._make_room(rounds * batch.workers)
            draws = self._draws[batch.workers] = Draws(self.setting, self._chance, batch.workers, rounds)
        elif draws.rounds < rounds:
            draws.reach(rounds)
        return draws

    def _make_room(self, cells: int) -> None:
        """Forgets the oldest draws while all would take too much memory."""
        while self._draws and cells + sum(draws.delays_s.size for draws in self._draws.values()) > TABLE_CELLS:
            del self._draws[next(iter(self._draws))]

    def _chunks(self, batch: Batch) -> Iterator[IntArray]:
        """Columns in runs that are played together, each in order of (W, B, lambda)."""
        by_mu = isinstance(self.setting.wait, Mu) and "window" in batch.values
        columns = np.arange(batch.size)
        edges = np.zeros(batch.size, dtype=np.bool_)
        if "window" in batch.values:
            window, burst, most = (batch.ints(name) for name in ("window", "burst", "max_stragglers"))
            columns = np.lexsort((most, burst, window)) if by_mu else np.lexsort((most, window, burst))
            if not by_mu:
                alike = [batch.ints(name) for name in FAMILIES[batch.scheme].alike]
                edges[1:] = np.any([np.diff(values[columns]) != 0 for values in alike], axis=0)
        size = CELLS // (16 * words_for(batch.workers)) if by_mu else CELLS // batch.workers
        for run in np.split(columns, np.flatnonzero(edges)):
            yield from (run[start : start + size] for start in range(0, run.size, size))
