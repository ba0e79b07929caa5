"""The right scheme, parameters and number of workers for a job, by time and money, from a delay profile.

    1. evaluate everything worth trying on the profile         search.py
    2. compare the best few over resampled profiles            robust.py
    3. play what fits itself to the delays on the same         fitting.py
       and what only the loop can play, if that is named       playing.py
    4. take the best that is robust, cross-validate, and report it beside the baselines

It reports the best even when that is `uncoded`. Read next: `search.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np

from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.errors import ConfigError, TaskFailed
from gradmux.orchestrator.evaluate import Batch, Evaluator
from gradmux.orchestrator.schemes.backup import INFO as BACKUP
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.schemes.uncoded import INFO as UNCODED
from gradmux.orchestrator.tune import playing, search
from gradmux.orchestrator.tune.by_hand import advice, here, map_batches, named_map
from gradmux.orchestrator.tune.fitting import FITS, allowed, fitting
from gradmux.orchestrator.tune.material import Material, prepare
from gradmux.orchestrator.tune.options import FITTING, TuneOptions
from gradmux.orchestrator.tune.result import Choice, CrossValidation, Spread, TuneResult
from gradmux.orchestrator.tune.robust import Finalists, Resampled, cross_validate, resample
from gradmux.orchestrator.tune.sampling import Candidate
from gradmux.orchestrator.tune.search import Tried

FINALISTS = 40
"""compared over resamples, at most"""
CLOSE = 0.06
"""only what is within this share of the best on the profile"""
TOLERABLE_LOSS = 0.05
"""by cross-validation, above which the profile counts as too short for its choice"""
FEW = 5
"""resampled profiles on which what fits itself to the delays is played, beside the best fixed choice"""
PARETO = 24
"""points of the front that are reported, at most"""
Point = TypeVar("Point")
Pick: TypeAlias = tuple[int, int]
"""(place in the list of what was tried, column)"""


def tune(
    profile: DelayProfile, options: TuneOptions | None = None, tell: Callable[[str], None] | None = None
) -> TuneResult:
    """The best choice for this profile, and what it was chosen from. `tell` hears how much there is to be tried.

    Raises: ConfigError when nothing fits the options or the profile.
    """
    started = time.perf_counter()
    options = options or TuneOptions()
    material = prepare(profile, options)
    tuning = _Tuning(material, options, tell)
    tuning.choose()
    baselines = tuning.baselines()
    return TuneResult(
        best=tuning.best,
        choices=tuning.by_scheme(),
        pareto=tuning.pareto(),
        baselines=baselines,
        advice=advice(tuning.best, baselines["map"], baselines["here"], options),
        evaluated=tuning.evaluated,
        elapsed_s=time.perf_counter() - started,
        objective=options.objective,
        hour_usd=options.hour_usd,
        models=options.models,
        concurrency=material.concurrency,
        warnings=(*material.warnings, *tuning.doubts()),
        cross_validation=tuning.validation,
    )


class _Tuning:
    """What was tried on one profile, ranked, and what is chosen of it."""

    def __init__(self, material: Material, options: TuneOptions, tell: Callable[[str], None] | None) -> None:
        self._material, self._options = material, options
        batches = search.batches(material, options)
        if tell is not None and batches:
            sets, most = sum(batch.size for batch in batches), max(batch.workers for batch in batches)
            tell(f"trying {sets:,} parameter sets on up to {most:,} workers, {options.jobs} jobs each")
        self.tried = search.try_all(batches, material, options)
        ranked = search.rank(self.tried, options) if self.tried else []
        self._ranked = [pick for pick in ranked if np.isfinite(self._value(pick))]
        """all that do not stop on the profile, best first"""
        self._spreads: dict[Pick, Spread | None] = {}
        self._best: Choice | None = None
        self.validation: CrossValidation | None = None
        self.fitting: Choice | None = None
        """what fits itself to the delays, if it may be chosen"""
        self.looped = playing.play_all(material, options, tell)
        if not (self.tried or allowed(options) or self.looped.every):
            raise ConfigError(f"nothing fits: {', '.join(options.schemes)} under these bounds has no parameters to try")

    @property
    def best(self) -> Choice:
        """What is chosen. Raises: ConfigError when all that was tried stops."""
        if self._best is None:
            raise ConfigError(
                f"whatever is tried stops on this profile: in some round all {self._options.attempts} attempts of a "
                "worker fail; allow more (--attempts), or measure anew"
            )
        return self._best

    def choose(self) -> None:
        """The best fixed choice, or what fits itself to the delays where that comes near it."""
        rng = np.random.default_rng((self._options.seed, 1))
        drawn = [resample(self._material, self._options.jobs, rng) for _ in range(self._options.resamples)]
        fixed, fixed_values = self._fixed(drawn) if self._ranked else (None, np.full(max(len(drawn), 1), np.inf))
        if fixed is not None:
            self._best = fixed
        few = drawn[:FEW]
        least = self._play_the_best(few, float(fixed_values[: max(len(few), 1)].mean()))
        if not allowed(self._options):
            return
        try:
            found = fitting(self._material, few, self._options)
        except TaskFailed:
            return
        self.fitting = found.choice
        if float(found.values.mean()) * (1.0 - FITS) <= least or not self.best.exact:
            self._best = found.choice

    def _play_the_best(self, few: list[Material], least: float) -> float:
        """The best of what the loop played is taken where it beats `least` on the same resamples; what is least now."""
        value = self._worth_of
        rivals = self.looped.exact or (() if np.isfinite(least) or allowed(self._options) else self.looped.estimates)
        if not rivals:
            return least
        rival = min(rivals, key=value)
        mean = float(np.mean([self._again(rival, each) for each in few or [self._material]]))
        if mean < least:
            self._best = rival
        return min(mean, least)

    def _again(self, rival: Choice, material: Material) -> float:
        """What it is worth on other delays; inf: it stops there."""
        try:
            return self._worth_of(playing.again(rival, material, self._options))
        except TaskFailed:
            return math.inf

    def _fixed(self, drawn: list[Material]) -> tuple[Choice, FloatArray]:
        """The best fixed choice, and its values on the resampled profiles (or on the profile itself, without any)."""
        finalists = Finalists(self.tried, self._close())
        rivals = {self.tried[place].batch.scheme for place, _ in finalists.picks}
        of_rivals = [each for each in self.tried if each.batch.scheme in rivals]
        self.validation = cross_validate(of_rivals, self._material, self._options)
        if not drawn:
            self._picked = self._ranked[0]
            return self._choice(self._picked), np.array([self._value(self._picked)])
        resampled = Resampled(finalists, drawn, self._options)
        self._spreads = {pick: resampled.spread(place) for place, pick in enumerate(finalists.picks)}
        place = resampled.best(self._options)
        self._picked = finalists.picks[place]
        return self._choice(self._picked), resampled.values(self._options)[:, place]

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

    def _worth_of(self, choice: Choice) -> float:
        """What is to be least."""
        return self._options.value(choice.cost_usd, choice.total_s)

    # --- reports -----------------------------------------------------------------------------------

    def _choice(self, pick: Pick) -> Choice:
        """What is told of one pick."""
        return self._choices([pick])[0]

    def _choices(self, picks: Iterable[Pick]) -> list[Choice]:
        """What is told of some picks, in their order."""
        evaluator = search.evaluator(self._material, self._options)
        return [
            _choice(self.tried[place], column, evaluator, self._spreads.get((place, column))) for place, column in picks
        ]

    def by_scheme(self) -> tuple[Choice, ...]:
        """The best of each scheme, best first; the choice stands for its own."""
        picks = self._best_of_each()
        if picks:
            own = self.tried[self._picked[0]].batch.scheme
            picks = [self._picked if self.tried[pick[0]].batch.scheme == own else pick for pick in picks]
        found = [*self._choices(picks), *([] if self.fitting is None else [self.fitting]), *self.looped.every]
        best: dict[str, Choice] = {self.best.scheme: self.best}
        for choice in sorted(found, key=self._worth_of):
            best.setdefault(choice.scheme, choice)
        return tuple(sorted(best.values(), key=self._worth_of))

    @property
    def evaluated(self) -> int:
        """Parameter sets, on the profile itself."""
        played = (self.fitting is not None) + len(self.looped.every)
        return sum(each.batch.size for each in self.tried) + played

    def pareto(self) -> tuple[Choice, ...]:
        """The front of time and money, fastest first; of estimates only where there is nothing exact."""
        fitting = () if self.fitting is None else (self.fitting,)
        beside = [*fitting, *(self.looped.exact if self.best.exact else self.looped.estimates)]
        total_s = np.concatenate([*(each.total_s for each in self.tried), [one.total_s for one in beside]])
        cost_usd = np.concatenate([*(each.cost_usd for each in self.tried), [one.cost_usd for one in beside]])
        picks = [(place, column) for place, each in enumerate(self.tried) for column in range(each.batch.size)]
        kept = thin([at for at in front(total_s, cost_usd) if np.isfinite(total_s[at])], PARETO)
        told = dict(
            zip(
                (at for at in kept if at < len(picks)),
                self._choices(picks[at] for at in kept if at < len(picks)),
                strict=True,
            )
        )
        return tuple(told[at] if at in told else beside[at - len(picks)] for at in kept)

    def doubts(self) -> tuple[str, ...]:
        """What speaks against trusting the choice."""
        left_out = FITTING in self._options.schemes and not allowed(self._options)
        told: tuple[str, ...] = (
            (f"{FITTING} is left out: its load follows the delays, and so keeps to no max_load",) if left_out else ()
        )
        told += (*self.looped.told, *playing.doubts(self.best, self.looped, self._material, self._options))
        return (*told, *_doubts(self.validation)) if self._ranked else told

    def baselines(self) -> dict[str, Choice | None]:
        """What a practitioner would do by hand, each with its best number of workers."""
        return {
            UNCODED.name: self._baseline(UNCODED.name),
            "independent": self._independent(),
            BACKUP.name: self._baseline(BACKUP.name),
            "map": self._map(),
            "here": here(self._options),
        }

    def _baseline(self, scheme: str) -> Choice | None:
        early = replace(self._options.closing, wait="earliest")
        options = replace(self._options, schemes=(scheme,), closing=early)
        tried = [each for each in self.tried if each.batch.scheme == scheme]
        if not tried or self._options.by_mu:
            batches = search.batches(self._material, options)
            tried = search.try_all(batches, self._material, options)
        if tried:
            return self._least(tried, options)
        looped = [each for each in self.looped.every if each.scheme == scheme]
        return min(looped, key=self._worth_of, default=None)

    def _independent(self) -> Choice | None:
        batch = search.independent(self._material, self._options)
        if batch is None:
            return None
        found = self._single([batch])
        return found and replace(found, scheme="independent", params={})

    def _map(self) -> Choice | None:
        batches = map_batches(self._material, self._options)
        if not batches:
            return None
        found = self._single(batches)
        return found and named_map(found)

    def _single(self, batches: list[Batch]) -> Choice | None:
        """The best of batches of one set each; None: all stop on the profile."""
        if not self._material.looped:
            return self._least(search.try_all(batches, self._material, self._options), self._options)
        found = [Candidate(batch.scheme, batch.params(0), batch.workers) for batch in batches]
        return min(playing.play(found, self._material, self._options).exact, key=self._worth_of, default=None)

    def _least(self, tried: list[Tried], options: TuneOptions) -> Choice | None:
        """The best; None: all stop on the profile."""
        place, column = search.rank(tried, options)[0]
        if not np.isfinite(tried[place].total_s[column]):
            return None
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
    if validation.loss is None:
        return (
            "the profile is too short for its choice: tuned on one half of its rounds, it stops on the other, as all "
            "attempts of a worker fail; measure more rounds",
        )
    if validation.loss <= TOLERABLE_LOSS:
        return ()
    return (
        f"the profile is too short for its choice: tuned on one half of its rounds, it loses {validation.loss:.1%} on "
        "the other against the best there; measure more rounds",
    )
