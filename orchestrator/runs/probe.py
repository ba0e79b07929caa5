"""Puts a probe together: the job's first model and data, one fleet, no training.

Read next: `orchestrator/delays/probe.py`, which measures.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from gradmux.orchestrator.backends import FleetPlan, Place, open_place
from gradmux.orchestrator.delays.probe import Probe, ProbePlan, probe
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire, wire_dtype
from gradmux.orchestrator.training.trainer import TorchTrainer

USUAL_SHARES = (1, 4, 16)
"""loads to measure at, in n-ths of a batch"""
PATIENCE_S = 60.0
"""A measurement waits no longer for workers that are refused."""


def plan_probe(prepared: Prepared, loads: tuple[float, ...] | None, rounds: int, workers: int | None) -> ProbePlan:
    """What to measure of this job; None: its own workers, and loads of 1/n, 4/n and 16/n. Raises: ConfigError."""
    cluster, count = prepared.config.cluster, workers or prepared.scheme().workers
    if count > cluster.concurrency:
        raise ConfigError(f"--workers {count} do not fit cluster.concurrency = {cluster.concurrency}")
    usual = tuple(sorted({min(1.0, share / count) for share in USUAL_SHARES}))
    return ProbePlan(count, usual if loads is None else loads, rounds, cluster.timeout_s)


def probe_job(
    prepared: Prepared, plan: ProbePlan, on_round: Callable[[int], None], tell: Callable[[str], None]
) -> Probe:
    """Measures at a place that is opened for it; `tell` is called with where that is. Raises: as `run_probe`."""
    with open_place(prepared.config) as place:
        tell(place.describe())
        return run_probe(prepared, place, plan, on_round)


def run_probe(prepared: Prepared, place: Place, plan: ProbePlan, on_round: Callable[[int], None]) -> Probe:
    """Measures with the workers of `place`; what it put into the store for that is removed again.

    Raises: PreflightError when the function or bucket cannot be used, ConfigError when nothing answers.
    """
    keys, single = Keys(f"probe-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"), JobPlan(models=1, steps=1)
    store = place.store()
    try:
        trainer = TorchTrainer(prepared.models[:1], single, store=store, keys=keys)
        materials = RunMaterials(
            keys=keys,
            bucket=place.bucket,
            data=put_dataset(store, prepared.train),
            specs=trainer.put_specs(),
            orders=[prepared.order],
            weights=trainer.weights,
            seeds=trainer.seeds,
            wire=Wire(dtype=wire_dtype([prepared.config.training.dtype], binary=True)),
            passes=prepared.passes,
        )
        cluster = prepared.config.cluster
        fleet = place.fleet(
            FleetPlan(
                requests=RequestBuilder(materials, single, plan.chunk_sizes),
                store=store,
                run=keys.run,
                timeout_s=cluster.timeout_s,
                patience_s=min(cluster.patience_s, PATIENCE_S),
            )
        )
        try:
            fleet.check(connections=plan.workers)
            trainer.publish(0)
            return probe(fleet, plan, on_round)
        finally:
            fleet.close()
            store.delete(store.list(keys.prefix))
    finally:
        store.close()
