"""Random evaluation cases: a profile, a setting, a scheme and parameter sets for it; and the loop's word on each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from gradmux.orchestrator.delays import Failures
from gradmux.orchestrator.errors import TaskFailed
from gradmux.orchestrator.evaluate import Batch, Setting
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Earliest, Limits, Mu
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.simulate import Simulation, SimulationOptions, simulate

SCHEMES = ("uncoded", "gc", "sr-sgc", "m-sgc", "backup", "pipeline", "stretch")
OVERLAPPING = ("pipeline", "stretch")


@dataclass(frozen=True)
class Case:
    """One batch in one setting."""

    setting: Setting
    batch: Batch

    def simulated(self, column: int) -> Simulation | None:
        """The loop, played for one column; None where the run stops, since all attempts of a worker fail."""
        setting, batch = self.setting, self.batch
        load = None if batch.loads is None else float(batch.loads[column])
        options = SimulationOptions(
            jobs=setting.jobs,
            models=setting.models if batch.scheme in OVERLAPPING else None,
            wait=setting.wait,
            limits=setting.limits,
            load=replace(setting.load, load=load),
            failures=setting.failures,
            workers=batch.workers,
            seed=setting.seed,
        )
        try:
            return simulate(setting.delays_s, batch.scheme, batch.params(column), options)
        except TaskFailed:
            return None


@st.composite
def profiles(draw: st.DrawFn, columns: int) -> FloatArray:
    """(6..9 rounds, columns) seconds: about 1 s, and stragglers that take up to 30 times as long.

    Rounds that start together must not share a row: their answers would tie, and the order of ties decide.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(6, 9))
    share = draw(st.sampled_from([0.0, 0.1, 0.4, 0.8]))
    delays = rng.uniform(0.8, 1.2, (rows, columns))
    return np.where(rng.random(delays.shape) < share, delays * rng.uniform(1, 30, delays.shape), delays)


@st.composite
def missing(draw: st.DrawFn, delays_s: FloatArray) -> tuple[FloatArray, Failures]:
    """The delays with some answers missing, and when that is found: after a delay of their own, or at the timeout."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lost = rng.random(delays_s.shape) < draw(st.sampled_from([0.05, 0.2, 0.5]))
    lost.flat[rng.integers(lost.size)] = False  # a profile without any answer is refused
    found_s = np.where(rng.random(delays_s.shape) < 0.7, rng.uniform(0.05, 4.0, delays_s.shape), np.inf)
    failures = Failures(draw(st.sampled_from([0.7, 3.0, 60.0])), draw(st.sampled_from([found_s, None])))
    return np.where(lost, np.inf, delays_s), failures


@st.composite
def waits(draw: st.DrawFn) -> Earliest | Mu:
    if draw(st.booleans()):
        return Earliest()
    wait_out = draw(st.sampled_from(["until", "all"]))
    model = draw(st.sampled_from(["bursty", "arbitrary", "either"]))
    return Mu(draw(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0])), wait_out, model)


@st.composite
def loads(draw: st.DrawFn, *, scales: bool) -> LoadModel:
    """Delays that grow by a slope, or (where that is evaluated) in proportion to the load."""
    if scales and draw(st.booleans()):
        return LoadModel(base_load=draw(st.sampled_from([0.1, 1.0])), scales=True)
    return LoadModel(draw(st.sampled_from([0.0, 0.3, 2.0])), draw(st.sampled_from([0.0, 0.1])))


@st.composite
def batches(draw: st.DrawFn, scheme: str, workers: int, *, idle: bool = False) -> Batch:
    """One to eight parameter sets; `idle`: idle workers are invoked, so that some may have nothing to do."""
    size = draw(st.integers(1, 8))

    def each(low: int, high: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)))

    code = draw(st.sampled_from(["fractional", "cyclic"]))
    if scheme == "uncoded":
        return Batch(scheme, workers, {}, size)
    if scheme == "gc":
        return Batch(scheme, workers, {"stragglers": each(0, workers - 1)}, size, code)
    if scheme == "backup":
        share = np.array(draw(st.lists(st.sampled_from([0.1, 0.5, 0.7, 0.9, 1.0]), min_size=size, max_size=size)))
        slack = np.array(draw(st.lists(st.sampled_from([0.05, 0.5, 1.0, 9.0]), min_size=size, max_size=size)))
        return Batch(scheme, workers, {"share": share, "mu": slack}, size)
    if scheme == "pipeline":
        values = {"per_job": np.full(size, workers), "stragglers": each(0, workers - 1)}
        return Batch(scheme, workers, values, size)
    if scheme == "stretch":
        values = {"copies": np.full(size, workers), "steps": each(1, 7), "quantile": np.ones(size)}
        return Batch(scheme, workers, values, size)
    burst, times = each(1, 3), each(1, 3)
    if scheme == "sr-sgc":
        values = {"burst": burst, "window": times * burst + 1, "max_stragglers": each(0, workers)}
        made = Batch(scheme, workers, values, size, code)
        fits = made.tolerance() < workers
        values["max_stragglers"] = np.where(fits, values["max_stragglers"], 0)
        return replace(made, values=values)
    values = {"burst": burst, "window": burst + times, "max_stragglers": each(0, workers - (not idle))}
    return Batch(scheme, workers, values, size, code)


@st.composite
def cases(draw: st.DrawFn, scheme: str, *, failing: bool = False) -> Case:
    """Everything that the evaluator covers; `failing`: with answers that are missing."""
    workers = draw(st.integers(1, 12))
    columns = workers + draw(st.sampled_from([0, 0, 3]))
    wait = Earliest() if scheme in ("backup",) else draw(waits())
    harvest = draw(st.booleans()) and not (scheme == "sr-sgc" and isinstance(wait, Mu))
    spare = draw(st.sampled_from([None, 0, 1, workers // 2, 2 * workers]))
    fixed = draw(st.booleans())
    idle = fixed and draw(st.booleans())
    batch = draw(batches(scheme, workers, idle=idle and isinstance(wait, Mu)))
    limits = Limits(
        concurrency=None if spare is None else workers + spare,
        in_flight_cap=draw(st.sampled_from([None, 0.0, 0.1, 0.3])),
        harvest_late=harvest,
        invoke_idle=idle,
    )
    if fixed:
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        batch = replace(batch, loads=rng.uniform(0, 1, batch.size))
    delays_s, failures = draw(profiles(columns)), Failures()
    if failing:
        delays_s, failures = draw(missing(delays_s))
        limits = replace(limits, attempts=draw(st.integers(1, 4)))
    setting = Setting(
        delays_s=delays_s,
        failures=failures,
        jobs=draw(st.integers(1, 12)),
        models=draw(st.integers(1, 5)),
        wait=wait,
        limits=limits,
        load=draw(loads(scales=not failing and not (scheme == "m-sgc" and isinstance(wait, Mu) and not fixed))),
        seed=draw(st.integers(0, 3)),
    )
    return Case(setting, batch)
