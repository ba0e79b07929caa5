"""Everything worth trying, evaluated on one profile: every scheme, its parameters, and the number of workers.

Knows no statistics: `robust.py` compares the best few over resampled profiles. Read next: `robust.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate import Batch, Evaluator, Played, Setting, grids
from gradmux.orchestrator.evaluate.batch import facts_of
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.families import FAMILIES, play_of, uncovered
from gradmux.orchestrator.evaluate.worth_trying import steps
from gradmux.orchestrator.policies import wait_policy
from gradmux.orchestrator.schemes.pipeline import INFO as PIPELINE
from gradmux.orchestrator.schemes.registry import get
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.tune.material import Material
from gradmux.orchestrator.tune.money import cost_usd
from gradmux.orchestrator.tune.options import TuneOptions

MOST_COPIES = 6
"""of a stretch: each is the work of a whole machine"""


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """One batch and how it did."""

    batch: Batch
    total_s: FloatArray
    billed_s: FloatArray
    cost_usd: FloatArray

    def value(self, options: TuneOptions) -> FloatArray:
        """(columns,) what is to be least."""
        return options.value(self.cost_usd, self.total_s)


def try_all(batches: list[Batch], material: Material, options: TuneOptions) -> list[Tried]:
    """All batches on one profile."""
    played = evaluator(material, options).play_all(batches)
    return [_tried(batch, each, options) for batch, each in zip(batches, played, strict=True)]


def _tried(batch: Batch, played: Played, options: TuneOptions) -> Tried:
    return Tried(batch, played.total_s, played.billed_s, cost_usd(batch, played, options))


def evaluator(material: Material, options: TuneOptions) -> Evaluator:
    """The evaluator for these delays."""
    return Evaluator(_setting(material, options), material.chance)


def _setting(material: Material, options: TuneOptions) -> Setting:
    return Setting(
        delays_s=material.delays_s,
        jobs=options.jobs,
        models=options.models,
        wait=wait_policy(options.closing),
        limits=options.limits(material.concurrency),
        load=material.load,
        failures=material.failures,
        seed=options.seed,
    )


def evaluated(scheme: str, material: Material, options: TuneOptions) -> bool:
    """Is a scheme the evaluator's to play on these delays, and not the loop's?"""
    return scheme in FAMILIES and not material.looped and not uncovered(scheme, _setting(material, options))


def batches(material: Material, options: TuneOptions) -> list[Batch]:
    """What is tried. Raises: ConfigError when a load would make delays negative."""
    by_mu = options.by_mu
    found = [
        batch
        for scheme in options.schemes
        if evaluated(scheme, material, options) and play_of(scheme, by_mu=by_mu)
        for workers in workers_for(scheme, material, options)
        for batch in grids.for_tuning(
            scheme,
            workers,
            models=options.models,
            max_load=options.max_load or workers,
            by_mu=by_mu,
            steps=-(-options.jobs // options.models),
            passes=options.passes,
        )
    ]
    for batch in found:
        _require_positive(batch, material)
    return [batch for batch in found if batch.size]


def independent(material: Material, options: TuneOptions) -> Batch | None:
    """M uncoded jobs side by side on C/M workers each: a pipeline without redundancy; None when C < M."""
    workers = min(material.concurrency // options.models, material.columns, options.passes or material.columns)
    if workers < 1:
        return None
    values = {"per_job": np.array([workers]), "stragglers": np.array([0])}
    return Batch(PIPELINE.name, workers, values, 1, passes=options.passes)


def workers_for(scheme: str, material: Material, options: TuneOptions) -> list[int]:
    """The n to try for a scheme, ascending."""
    if options.workers is not None:
        return sorted(set(options.workers))
    most = min(material.concurrency, material.columns)
    if get(scheme).stretches:
        bounds = (MOST_COPIES, most, options.max_load or MOST_COPIES)
        return list(range(1, int(min(bounds)) + 1))
    found = {*steps(most, FAMILIES[scheme].step), most, min(most, options.passes or most)}
    if facts_of(scheme).overlapping:
        shares = (material.concurrency // jobs for jobs in range(1, 2 * options.models + 1))
        found |= {share for share in shares if 1 <= share <= most}
    return sorted(found)


def _require_positive(batch: Batch, material: Material) -> None:
    if not batch.size or material.load.scales:
        return
    load = float(batch.load().min())
    fastest_s = float(material.answered_s.min()) + material.load.shift_s(load)
    if fastest_s < 0:
        raise ConfigError(
            f"a slope of {material.load.slope_s:g} s and a base load of {material.load.base_load:g} make the fastest "
            f"answer take {fastest_s:.3f} s at load {load:.4f} ({batch.scheme} on {batch.workers} workers): use a "
            "smaller --slope, or a profile measured at a smaller load"
        )


def rank(tried: list[Tried], options: TuneOptions) -> list[tuple[int, int]]:
    """(place in `tried`, column) of everything, best first."""
    values = np.concatenate([each.value(options) for each in tried])
    batch = np.repeat(np.arange(len(tried)), [each.batch.size for each in tried])
    column: IntArray = np.concatenate([np.arange(each.batch.size) for each in tried])
    order = np.argsort(values, kind="stable")
    return list(zip(batch[order].tolist(), column[order].tolist(), strict=True))
