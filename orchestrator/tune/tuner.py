"""The right scheme, parameters and number of workers for a job, by time or by money, from a delay profile.

    1. evaluate everything worth trying on the profile         search.py
    2. compare the best few over resampled profiles            robust.py
    3. take the best that is robust, cross-validate, and report it beside the baselines

It reports the best even when that is `uncoded`. Read next: `search.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np

from orchestrator.delays import DelayProfile
from orchestrator.evaluate import Evaluator
from orchestrator.policies import Earliest, Mu
from orchestrator.schemes.scheme import FloatArray
from orchestrator.tune import search
from orchestrator.tune.material import Material, prepare
from orchestrator.tune.options import TuneOptions
from orchestrator.tune.result import Choice, CrossValidation, Spread, TuneResult
from orchestrator.tune.robust import Finalists, Resampled, cross_validate
from orchestrator.tune.search import Tried

FINALISTS = 40
"""compared over resamples, at most"""
CLOSE = 0.06
"""only what is within this share of the best on the profile"""
TOLERABLE_LOSS = 0.05
"""by cross-validation, above which the profile counts as too short for its choice"""
PARETO = 24
"""points of the front that are reported, at most"""
Point = TypeVar("Point")
Pick: TypeAlias = tuple[int, int]
"""(place in the list of what was tried, column)"""


def tune(profile: DelayProfile, options: TuneOptions | None = None) -> TuneResult:
    """The best choice for this profile, and what it was chosen from.

    Raises: ConfigError when nothing fits the options or the profile.
    """
    started = time.perf_counter()
    options = options or TuneOptions()
    material = prepare(profile, options)
    tuning = _Tuning(material, options)
    best, spreads, validation = tuning.choose()
    return TuneResult(
        best=tuning.choice(best, spreads),
        choices=tuning.by_scheme(best, spreads),
        pareto=tuning.pareto(spreads),
        baselines=tuning.baselines(),
        evaluated=sum(each.batch.size for each in tuning.tried),
        elapsed_s=time.perf_counter() - started,
        objective=options.objective,
        models=options.models,
        concurrency=material.concurrency,
        warnings=(*material.warnings, *_doubts(validation)),
        cross_validation=validation,
    )


class _Tuning:
    """What was tried on one profile, ranked."""

    def __init__(self, material: Material, options: TuneOptions) -> None:
        self._material, self._options = material, options
        self.tried = search.try_all(search.batches(material, options), material, options)
        self._ranked = search.rank(self.tried, options)

    def choose(self) -> tuple[Pick, dict[Pick, Spread], CrossValidation | None]:
        """The best pick, how the finalists' times vary, and what cross-validation says."""
        finalists = Finalists(self.tried, self._close())
        rivals = {self.tried[place].batch.scheme for place, _ in finalists.picks}
        of_rivals = [each for each in self.tried if each.batch.scheme in rivals]
        validation = cross_validate(of_rivals, self._material, self._options)
        if not self._options.resamples:
            return self._ranked[0], {}, validation
        resampled = Resampled(finalists, self._material, self._options)
        spreads = {pick: resampled.spread(place) for place, pick in enumerate(finalists.picks)}
        return finalists.picks[resampled.best(self._options)], spreads, validation

    def _close(self) -> list[Pick]:
        """The best few that are close to the very best."""
        least = self._value(self._ranked[0])
        return [pick for pick in self._ranked[:FINALISTS] if self._value(pick) <= least * (1.0 + CLOSE)]

    def _value(self, pick: Pick) -> float:
        return float(self.tried[pick[0]].value(self._options)[pick[1]])

    def _best_of_each(self) -> list[Pick]:
        """The best pick of each scheme, best first."""
        found: dict[str, Pick] = {}
        for pick in self._ranked:
            found.setdefault(self.tried[pick[0]].batch.scheme, pick)
        return list(found.values())

    # --- reports -----------------------------------------------------------------------------------

    def choice(self, pick: Pick, spreads: dict[Pick, Spread]) -> Choice:
        """What is told of one pick."""
        return self.choices([pick], spreads)[0]

    def choices(self, picks: Iterable[Pick], spreads: dict[Pick, Spread]) -> tuple[Choice, ...]:
        """What is told of some picks, in their order."""
        evaluator = search.evaluator(self._material, self._options)
        return tuple(
            _choice(self.tried[place], column, evaluator, spreads.get((place, column))) for place, column in picks
        )

    def by_scheme(self, best: Pick, spreads: dict[Pick, Spread]) -> tuple[Choice, ...]:
        """The best of each scheme, best first; the robust choice stands for its own."""
        own = self.tried[best[0]].batch.scheme
        picks = [best if self.tried[pick[0]].batch.scheme == own else pick for pick in self._best_of_each()]
        return self.choices(picks, spreads)

    def pareto(self, spreads: dict[Pick, Spread]) -> tuple[Choice, ...]:
        """The front of time and money, fastest first."""
        total_s = np.concatenate([each.total_s for each in self.tried])
        cost_usd = np.concatenate([each.cost_usd for each in self.tried])
        picks = [(place, column) for place, each in enumerate(self.tried) for column in range(each.batch.size)]
        return self.choices((picks[at] for at in thin(front(total_s, cost_usd), PARETO)), spreads)

    def baselines(self) -> dict[str, Choice | None]:
        """What a practitioner would do by hand, each with its best number of workers."""
        return {
            "uncoded": self._baseline("uncoded"),
            "independent": self._independent(),
            "backup": self._baseline("backup"),
        }

    def _baseline(self, scheme: str) -> Choice | None:
        options = replace(self._options, schemes=(scheme,), wait=Earliest())
        tried = [each for each in self.tried if each.batch.scheme == scheme]
        if not tried or isinstance(self._options.wait, Mu):
            batches = search.batches(self._material, options)
            tried = search.try_all(batches, self._material, options)
        return self._least(tried, options) if tried else None

    def _independent(self) -> Choice | None:
        batch = search.independent(self._material, self._options)
        if batch is None:
            return None
        tried = search.try_all([batch], self._material, self._options)
        return replace(self._least(tried, self._options), scheme="independent", params={})

    def _least(self, tried: list[Tried], options: TuneOptions) -> Choice:
        place, column = search.rank(tried, options)[0]
        evaluator = search.evaluator(self._material, options)
        return _choice(tried[place], column, evaluator, None)


def _choice(tried: Tried, column: int, evaluator: Evaluator, spread: Spread | None) -> Choice:
    """One column with what was in flight, which only a closer look tells."""
    single = tried.batch.take(np.array([column]))
    peak = evaluator.play(single, detail=True).peak
    assert peak is not None
    return Choice(
        scheme=single.scheme,
        params=single.params(0),
        workers=single.workers,
        total_s=float(tried.total_s[column]),
        load=float(single.load()[0]),
        in_flight_max=int(peak[0]),
        billed_s=float(tried.billed_s[column]),
        cost_usd=float(tried.cost_usd[column]),
        spread=spread,
    )


def front(first: FloatArray, second: FloatArray) -> list[int]:
    """The places that no other beats in both values, in order of the first."""
    order = np.lexsort((second, first))
    least_before = np.concatenate([[np.inf], np.minimum.accumulate(second[order])[:-1]])
    found: list[int] = order[second[order] < least_before].tolist()
    return found


def thin(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most so many, evenly spread, with the first and the last."""
    if len(points) <= most:
        return points
    return [points[round(at)] for at in np.linspace(0, len(points) - 1, most)]


def _doubts(validation: CrossValidation | None) -> tuple[str, ...]:
    """Is the profile too short for its choice?"""
    if validation is None:
        return ("too few rounds to cross-validate the choice",)
    if validation.loss <= TOLERABLE_LOSS:
        return ()
    return (
        f"the profile is too short for its choice: tuned on one half of its rounds, it loses {validation.loss:.1%} on "
        "the other against the best there; measure more rounds",
    )
