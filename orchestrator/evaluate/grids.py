"""Batches worth trying: the published search's own grid, and the tuner's.

Knows no delays. Read next: `worth_trying.py`, `orchestrator/tune/search.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradmux.orchestrator.evaluate.batch import Batch
from gradmux.orchestrator.evaluate.bits import IntArray
from gradmux.orchestrator.evaluate.families import FAMILIES
from gradmux.orchestrator.evaluate.worth_trying import TOLERANCE, Bounds, sequential, windows
from gradmux.orchestrator.schemes.facts import FRACTIONAL, code_load
from gradmux.orchestrator.schemes.gradient_coding import INFO as GC
from gradmux.orchestrator.schemes.multiplexed import INFO as M_SGC
from gradmux.orchestrator.schemes.registry import get
from gradmux.orchestrator.schemes.selective_repeat import INFO as SR_SGC

CYCLIC = "cyclic"


def published(workers: int, jobs: int, max_delay: int) -> list[Batch]:
    """The search of the authors of sequential gradient coding: `gc`, `sr-sgc`, `m-sgc`, with their loads.

    Their `gc` with s admits s - 1 stragglers while it charges the load of s. Source: the code to arXiv 2211.13802.
    """
    s = np.arange(1, workers + 1)
    gc = Batch(GC.name, workers, {"stragglers": s - 1}, workers, CYCLIC, loads=(s + 1) / workers)
    by_burst = windows(SR_SGC.name, max_delay, jobs)
    by_burst = by_burst[np.argsort(by_burst[:, 0], kind="stable")]
    repeat = sequential(SR_SGC.name, workers, by_burst, s, CYCLIC)
    multiplexed = sequential(M_SGC.name, workers, windows(M_SGC.name, max_delay - 1, jobs - 1), s, CYCLIC)
    return [gc, repeat.with_loads(code_load(CYCLIC, workers, repeat.tolerance())), _with_published_load(multiplexed)]


def _with_published_load(batch: Batch) -> Batch:
    """As that search states it, which is ours but for the order of its roundings."""
    workers = batch.workers
    burst, window, most = (batch.ints(name) for name in ("burst", "window", "max_stragglers"))
    coded = (most + 1) * (window - 1 + burst) / (workers * (burst + (window - 1) * (most + 1)))
    uncoded = (window - 1 + burst) / (workers * (window - 1))
    return batch.with_loads(np.where(most == workers, uncoded, coded))


def for_tuning(
    scheme: str,
    workers: int,
    *,
    models: int,
    max_load: float,
    by_mu: bool = False,
    steps: int = 1,
    passes: int | None = None,
) -> list[Batch]:
    """What the tuner tries of one scheme on n workers: all parameters that can make a difference.

    `max_load`: largest load, as a multiple of 1/n; `models`: M, which bounds the delay T by M - 1. The codes are
    fractional, under the papers' rule also cyclic where that is less load. `steps`: of each model, which bounds K of
    stretches; for these, whole batches, `max_load` bounds the copies. `passes`: of a batch, which nothing cuts into
    more parts.
    """
    bounds = Bounds(scheme, workers, models - 1, max_load, by_mu, steps)
    batch = replace(FAMILIES[scheme].grid(bounds), passes=passes)
    if get(scheme).stretches:
        return [batch]
    kept = [batch, *([_cyclic(batch)] if by_mu and batch.code == FRACTIONAL and batch.size else [])]
    kept = [each if passes is None else each.take(each.parts() <= passes) for each in kept if each.size]
    return [each.take(each.load() * workers <= max_load * (1 + TOLERANCE)) for each in kept if each.size]


def _cyclic(batch: Batch) -> Batch:
    """The same under cyclic codes where these are less load; elsewhere fractional ones let more patterns go."""
    cyclic = replace(batch, code=CYCLIC)
    columns: IntArray = np.flatnonzero(cyclic.load() < batch.load() * (1 - TOLERANCE))
    return cyclic.take(columns)
