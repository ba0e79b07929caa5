"""What the evaluator does not cover, played by the loop: few parameter sets of each scheme, and no more than is told.

Schemes that estimate, or reuse old gradients, are played where they are named, and marked: they change what is learned.
They are never chosen while there is an exact scheme. Schemes from elsewhere are rehearsed before they are played
(`simulate` does that). Parameters come from the scheme's own grid, or from `sampling.py`. Read next: `sampling.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradmux.orchestrator.errors import ConfigError, TaskFailed
from gradmux.orchestrator.evaluate.families import FAMILIES, Grid
from gradmux.orchestrator.evaluate.worth_trying import Bounds
from gradmux.orchestrator.policies import wait_policy
from gradmux.orchestrator.schemes.codes.code import noise_warning
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context
from gradmux.orchestrator.simulate import SimulationOptions, simulate
from gradmux.orchestrator.tune.fitting import bill_of
from gradmux.orchestrator.tune.material import Material
from gradmux.orchestrator.tune.options import FITTING, TuneOptions
from gradmux.orchestrator.tune.result import Choice
from gradmux.orchestrator.tune.sampling import Candidate, sampled, thinned
from gradmux.orchestrator.tune.search import evaluated

MOST_CALLS = 200_000
"""invocations that all of it may take to play, about: 256 workers over 100 rounds of gc, uncoded and m-sgc took 53 to
66 microseconds of processor time for each, which makes 11 to 13 s"""
MOST_SETS = 24
"""parameter sets of a scheme that are played, at most"""
PATIENCE_S = 30.0
"""after which no more is played"""
FIRST = 5
"""jobs of each model that are played to see how much the chosen code amplifies rounding"""
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class PlayedByLoop:
    """What was played, and what is to be told of it."""

    exact: tuple[Choice, ...] = ()
    estimates: tuple[Choice, ...] = ()
    """these change what is learned, not only when"""
    told: tuple[str, ...] = ()
    """what was left out, and why"""

    @property
    def every(self) -> tuple[Choice, ...]:
        """All of them."""
        return (*self.exact, *self.estimates)


def candidates(material: Material, options: TuneOptions) -> tuple[list[Candidate], tuple[str, ...]]:
    """What is to be played, and a sentence where that is less than there is. Raises: ConfigError, SchemeFault."""
    by_scheme: dict[str, list[Candidate]] = {}
    for scheme in options.schemes:
        if scheme != FITTING and not evaluated(scheme, material, options):
            by_scheme[scheme] = sampled(scheme, _workers(material, options), options)
        elif scheme != FITTING and (beyond := FAMILIES[scheme].beyond) is not None:
            by_scheme[scheme] = [
                each for workers in _workers(material, options) for each in _beyond(beyond, scheme, workers, options)
            ]
    most = max(1, MOST_CALLS // options.jobs)
    found, told = [], []
    for scheme, every in by_scheme.items():
        kept = _within(thinned(every, MOST_SETS), most // max(1, len(by_scheme)))
        if len(kept) < len(every):
            told.append(f"{scheme} is played by the loop: {len(kept)} of {len(every)} parameter sets were tried")
        found += kept
    return found, tuple(told)


def _within(every: Sequence[Candidate], workers: int) -> list[Candidate]:
    """As many, evenly spread, as invoke about so many workers in a round together; one at least."""
    kept = list(every)
    while len(kept) > 1 and sum(each.workers for each in kept) > workers:
        kept = list(thinned(kept, len(kept) - 1))
    return kept


def _workers(material: Material, options: TuneOptions) -> list[int]:
    """n: as many as there may be, and half of them; or those that were asked for."""
    most = min(material.concurrency, material.columns)
    return sorted({n for n in options.workers or (most, -(-most // 2)) if n <= most})


def _beyond(grid: Grid, scheme: str, workers: int, options: TuneOptions) -> list[Candidate]:
    """Parameter sets of an evaluated scheme that only the loop can play."""
    batch = grid(Bounds(scheme, workers, options.models - 1, options.max_load or workers))
    return [Candidate(scheme, batch.params(column), workers) for column in range(batch.size)]


def play(found: list[Candidate], material: Material, options: TuneOptions) -> PlayedByLoop:
    """Plays them, as long as there is patience. Raises: SchemeFault of a scheme that does not keep what it promises."""
    exact: list[Choice] = []
    estimates: list[Choice] = []
    refused: dict[str, str] = {}
    until = time.perf_counter() + PATIENCE_S
    for place, candidate in enumerate(found):
        if time.perf_counter() > until:
            late = f"{len(found) - place} of {len(found)} parameter sets were not played: {PATIENCE_S:g} s were over"
            return PlayedByLoop(tuple(exact), tuple(estimates), (late,))
        try:
            choice = play_one(candidate, material, options)
        except (ConfigError, TaskFailed) as error:
            refused.setdefault(candidate.scheme, str(error))
            continue
        if choice.load * choice.workers <= (options.max_load or choice.workers) * (1 + TOLERANCE):
            (exact if choice.exact else estimates).append(choice)
    fitting = {each.scheme for each in (*exact, *estimates)}
    told = tuple(f"{scheme} is left out: {why}" for scheme, why in refused.items() if scheme not in fitting)
    return PlayedByLoop(tuple(exact), tuple(estimates), told)


def play_one(candidate: Candidate, material: Material, options: TuneOptions) -> Choice:
    """One parameter set over the material. Raises: ConfigError, SchemeFault, TaskFailed."""
    context = Context(
        candidate.workers,
        options.jobs,
        options.models,
        options.seed,
        concurrency=material.concurrency,
        passes=options.passes,
    )
    scheme = build_scheme(candidate.scheme, candidate.params, context)
    if options.passes is not None and len(scheme.chunk_sizes) > options.passes:
        raise ConfigError(f"it cuts a batch of {options.passes} passes into {len(scheme.chunk_sizes)} parts")
    run = simulate(material.delays_s, candidate.scheme, candidate.params, _settings(candidate, material, options))
    decodes = [each.missing for line in run.lines for each in line.decoded]
    return Choice(
        scheme=candidate.scheme,
        params=dict(candidate.params),
        workers=run.workers,
        total_s=run.total_s,
        load=run.load,
        in_flight_max=run.in_flight_max,
        billed_s=run.billed_s,
        cost_usd=bill_of(run, options),
        exact=bool(scheme.exact) and not scheme.reuses_results,
        missing=float(np.mean(decodes)) if decodes else 0.0,
        amplification=run.max_amplification,
    )


def _settings(candidate: Candidate, material: Material, options: TuneOptions) -> SimulationOptions:
    return SimulationOptions(
        options.jobs,
        options.models,
        wait=wait_policy(options.closing),
        limits=options.limits(material.concurrency),
        load=material.load,
        failures=material.failures,
        workers=candidate.workers,
        seed=options.seed,
        passes=options.passes,
    )


def play_all(material: Material, options: TuneOptions, tell: Callable[[str], None] | None) -> PlayedByLoop:
    """What is named and not evaluated. `tell` hears how much that is. Raises: ConfigError, SchemeFault."""
    found, left_out = candidates(material, options)
    if tell is not None and found:
        tell(f"playing {len(found):,} parameter sets by the loop, for {PATIENCE_S:g} s at most")
    played = play(found, material, options)
    return replace(played, told=(*left_out, *played.told))


def again(choice: Choice, material: Material, options: TuneOptions) -> Choice:
    """The same over other delays."""
    return play_one(Candidate(choice.scheme, choice.params, choice.workers), material, options)


def doubts(best: Choice, played: PlayedByLoop, material: Material, options: TuneOptions) -> tuple[str, ...]:
    """What is to be said of the choice: that it estimates, that an estimate is left aside, that it is noisy."""
    told = list(_noise(best, material, options))
    if not best.exact:
        told.append(f"{best.scheme} {_changes(best)}: it was chosen since there was no exact scheme")
        return tuple(told)
    value = options.value(best.cost_usd, best.total_s)
    better = [each for each in played.estimates if options.value(each.cost_usd, each.total_s) < value]
    for scheme in dict.fromkeys(each.scheme for each in better):
        first = min((each for each in better if each.scheme == scheme), key=lambda each: each.total_s)
        told.append(f"{scheme} takes {first.total_s:.2f} s, but {_changes(first)}: an exact scheme was chosen")
    return tuple(told)


def _changes(choice: Choice) -> str:
    if not choice.missing:
        return "may reuse old gradients, which changes what is learned"
    return f"steps by an estimate (its decodes lack {choice.missing:.1%} of the gradient on average)"


def _noise(choice: Choice, material: Material, options: TuneOptions) -> tuple[str, ...]:
    """The warning beside a choice whose decodes amplify rounding too much: for that, its first jobs are played."""
    amplification = choice.amplification
    if not amplification and choice.params.get("code", "fractional") != "fractional":
        few = replace(options, jobs=min(options.jobs, FIRST * options.models))
        amplification = again(choice, material, few).amplification
    warning = noise_warning(amplification)
    return (f"{choice.scheme}: {warning}",) if warning else ()
