"""One scheme over a delay profile in virtual time: the loop itself, over `ProfileFleet` and a trainer without models.

Knows no file formats and no CLI. Read next: `loop.py`; for thousands of parameters at once, `evaluate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradmux.orchestrator.delays.dealing import dealt
from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.delays.profile import DelayProfile, delay_matrix
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import JobPlan, OpenPlan, Plan
from gradmux.orchestrator.loop import Loop, RunSummary
from gradmux.orchestrator.policies import Earliest, Limits, WaitPolicy
from gradmux.orchestrator.ports import StepResult
from gradmux.orchestrator.record import MemoryRecord, RoundLine
from gradmux.orchestrator.rehearsal import rehearse_plugin
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.asks import Following
from gradmux.orchestrator.schemes.codes.code import noise
from gradmux.orchestrator.schemes.registry import build_scheme, get
from gradmux.orchestrator.schemes.scheme import Context, Expected, FloatArray, Params, Scheme
from gradmux.orchestrator.schemes.worth import WORTH, Worth

PIPELINE_MODELS = 4
"""models side by side that an overlapping scheme is simulated with when nothing is said"""


class NoTrainer:
    """`ports.Trainer` without models: publishes nothing and learns nothing."""

    def publish(self, job: int) -> None:
        """There are no weights."""

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        return StepResult(loss=0.0, count=0, correct=0, gradient_norm=0.0)

    def retire(self, job: int) -> None:
        """There are no snapshots."""


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How to play the profile."""

    jobs: int = 100
    """J; of a scheme whose jobs may have several steps: steps of all models together"""
    models: int | None = None
    """M; None: T + 1, the fewest that the scheme works with (overlapping schemes: 4)"""
    wait: WaitPolicy = field(default_factory=Earliest)
    limits: Limits = field(default_factory=Limits)
    load: LoadModel = field(default_factory=LoadModel)
    failures: Failures = field(default_factory=Failures)
    """when calls without an answer (a delay of inf) are found; `DelayProfile.failures` has what a profile states"""
    workers: int | None = None
    """n; None: as many as the profile has"""
    passes: int | None = None
    """P, into how many passes every batch is cut: loads are multiples of 1/P; None: any"""
    seed: int = 0
    worth: Worth = WORTH
    """by what a scheme chooses that sizes its jobs itself"""
    expected: Expected | None = None
    """what it takes calls to take before it has made any"""
    stretches: bool | None = None
    """may jobs have several steps? None: as the scheme's entry says"""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the simulated run took. Durations in seconds; the fields are those of `gradmux simulate --json`."""

    scheme: str
    params: Mapping[str, Any]
    workers: int
    jobs: int
    models: int
    rounds: int
    delay: int
    load: float
    """largest fraction of one batch that one worker processed in one round"""
    durations: tuple[float, ...]
    """per round, from its dispatch to its close (overlapping schemes: to the decode of its job)"""
    total_s: float
    waits: int
    """rounds whose stragglers at the cut did not conform (mu rule)"""
    dropped: tuple[tuple[int, ...], ...]
    """per round: workers that had not answered when it closed"""
    in_flight_mean: float
    """invocations in flight, averaged over the run's time"""
    in_flight_max: int
    """invocations in flight, at most at any instant"""
    left_in_flight_max: int
    """invocations still running when a round closed, at most"""
    billed_s: float
    invocations: int
    concurrency: int | None
    """C; None: not limited"""
    max_residual: float
    """largest |weights x rows - 1| of any decode"""
    max_amplification: float
    """how much rounding noise the worst decode amplified"""
    lines: tuple[RoundLine, ...] = field(repr=False, default=())

    @property
    def allowed(self) -> str:
        """How many may be in flight, as it stands behind how many were."""
        return "" if self.concurrency is None else f", of C = {self.concurrency:,} allowed"

    @property
    def noise(self) -> list[tuple[str, str]]:
        """The warning that stands beside it, if its decodes amplify rounding too much."""
        return noise(self.max_amplification)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the record's lines."""
        names = [name for name in self.__slots__ if name not in ("lines", "max_residual", "max_amplification")]
        plain = {name: getattr(self, name) for name in names}
        return plain | {
            "params": dict(self.params),
            "durations": list(self.durations),
            "dropped": [list(d) for d in self.dropped],
            "decode": {"max_residual": self.max_residual, "max_amplification": self.max_amplification},
        }


def simulate(delays_s: FloatArray, scheme: str, params: Params, options: SimulationOptions) -> Simulation:
    """Plays `scheme` over `delays_s` (rounds, columns) seconds.

    An inf is a call that fails: it is found when `options.failures` says so, and invoked again within the attempts. A
    scheme that learns from the delays gets them dealt anew when they come round again.
    Raises: ConfigError for parameters that do not fit the scheme, the models or the concurrency, and for delays that
    are no such matrix; SchemeFault.
    """
    delays_s, failures = delay_matrix(delays_s), options.failures
    workers = options.workers or delays_s.shape[1]
    context = _context(scheme, params, workers, options)
    rehearse_plugin(scheme, params, context)
    built = build_scheme(scheme, params, context)
    models = _models(built, options)
    several = get(scheme).stretches if options.stretches is None else options.stretches
    plan: Plan = open_plan_for(models, options.jobs) if several else plan_for(models, options.jobs)
    # An overlapping scheme chooses its own n; `workers` is then how many columns the profile is taken to have.
    if isinstance(built, Following) and not get(scheme).stretches:  # which learn what is late, not where
        delays_s = dealt(delays_s, options.jobs, options.seed)
        failures = failures.dealt(options.jobs, options.seed)
    table = DelayTable(delays_s, built.workers, options.seed, failures=failures)
    fleet = ProfileFleet(table, options.load)
    record = MemoryRecord()
    rounds = Rounds(built, plan, options.wait, options.limits)
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=NoTrainer(), recorder=record)
    played = loop.run()
    billed_s = loop.drain(patience_s=float("inf")).billed_s
    return _simulation(built, params, models, options.load, fleet, record, played, billed_s, options.limits.concurrency)


@dataclass(frozen=True, slots=True)
class Repeated:
    """One simulation with several seeds; the fields are those of `gradmux simulate --repeat --json`."""

    runs: Mapping[int, Simulation]
    """seed -> a run that came to its end"""
    stopped: Mapping[int, str]
    """seed -> why that run stopped: all attempts of a worker failed"""

    @property
    def spread(self) -> dict[str, dict[str, float]]:
        """Of time, bill and invocations: mean, sd (n - 1), least, median and most; empty when all runs stopped."""
        names = ("total_s", "billed_s", "invocations") if self.runs else ()
        return {name: _spread([float(getattr(run, name)) for run in self.runs.values()]) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the spread, and each run's figures without its rounds."""
        rounds = ("durations", "dropped")
        told = {
            seed: {name: of for name, of in run.to_dict().items() if name not in rounds}
            for seed, run in self.runs.items()
        }
        return {
            "spread": self.spread,
            "runs": [{"seed": seed, **run} for seed, run in told.items()],
            "stopped": [{"seed": seed, "reason": reason} for seed, reason in self.stopped.items()],
        }


def repeat(
    profile_of: Callable[[int], DelayProfile], scheme: str, params: Params, options: SimulationOptions, times: int
) -> Repeated:
    """`simulate` with the seeds from `options.seed` on; `profile_of`: a seed's delays, of a file the same for all.

    A seed draws the columns that each round uses, the second calls, the codes, and a generator's delays.
    Raises: as `simulate`, but for runs that stop.
    """
    runs: dict[int, Simulation] = {}
    stopped: dict[int, str] = {}
    for seed in range(options.seed, options.seed + times):
        try:
            profile = profile_of(seed)
            failures = profile.failures(options.failures.timeout_s)
            runs[seed] = simulate(profile.delays_s, scheme, params, replace(options, seed=seed, failures=failures))
        except RunStopped as error:
            stopped[seed] = str(error)
    return Repeated(runs, stopped)


def _spread(values: Sequence[float]) -> dict[str, float]:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    least, median, most = (float(found) for found in np.quantile(values, (0.0, 0.5, 1.0)))
    return {"mean": float(np.mean(values)), "sd": sd, "min": least, "median": median, "max": most}


def plan_for(models: int, jobs: int) -> JobPlan:
    """A plan of exactly `jobs` jobs, also where M does not divide it."""
    steps = -(-jobs // models)
    return JobPlan(models, steps, first=models * steps - jobs)


def open_plan_for(models: int, jobs: int) -> OpenPlan:
    """The same number of steps in all, for jobs that may have several of them."""
    steps = -(-jobs // models)
    fewer = models * steps - jobs
    return OpenPlan([int(model < fewer) for model in range(models)], [steps] * models)


def _context(scheme: str, params: Params, workers: int, options: SimulationOptions) -> Context:
    models = options.models or PIPELINE_MODELS
    concurrency = options.limits.concurrency
    return Context(
        workers=workers,
        jobs=options.jobs,
        models=models,
        seed=options.seed,
        concurrency=concurrency,
        worth=options.worth,
        expected=options.expected,
        passes=options.passes,
    )


def _models(scheme: Scheme, options: SimulationOptions) -> int:
    if options.models is not None:
        return options.models
    return PIPELINE_MODELS if scheme.overlapping else scheme.delay + 1


def _simulation(
    scheme: Scheme,
    params: Params,
    models: int,
    load: LoadModel,
    fleet: ProfileFleet,
    record: MemoryRecord,
    played: RunSummary,
    billed_s: float,
    concurrency: int | None,
) -> Simulation:
    lines = record.rounds
    idle = max(scheme.rounds - len(lines), 0) if not scheme.overlapping else 0
    return Simulation(
        scheme=scheme.name,
        params=params,
        workers=scheme.workers,
        jobs=scheme.jobs,
        models=models,
        rounds=len(lines) + idle,
        delay=scheme.delay,
        load=max((line.load for line in lines), default=0.0) if load.load is None else load.load,
        durations=tuple(line.end_s - line.start_s for line in lines) + (0.0,) * idle,
        total_s=played.wall_s,
        waits=sum(line.waited for line in lines),
        dropped=tuple(line.late for line in lines) + ((),) * idle,
        in_flight_mean=fleet.busy_s / played.wall_s if played.wall_s > 0 else 0.0,
        in_flight_max=fleet.peak,
        left_in_flight_max=max((line.in_flight for line in lines), default=0),
        billed_s=billed_s,
        invocations=played.invocations,
        concurrency=concurrency,
        max_residual=played.max_residual,
        max_amplification=played.max_amplification,
        lines=tuple(lines),
    )
