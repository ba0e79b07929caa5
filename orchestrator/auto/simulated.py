"""A whole run under auto in virtual time: the pilot's segments, each played by the loop over a delay profile.

Job t of the run meets row t of the profile under every scheme, so that totals can be compared with those of
`simulate.simulate`. What deciding costs in seconds of the client is not in the totals. Read next: `pilot.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from gradmux.orchestrator.auto.choice import AUTO, AutoJob, Choice
from gradmux.orchestrator.auto.decide import worth_of_job
from gradmux.orchestrator.auto.pilot import Pilot, Segment, Watched
from gradmux.orchestrator.closing import Closing
from gradmux.orchestrator.delays.failures import Failures
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop, RunSummary
from gradmux.orchestrator.policies import Earliest, limits_of
from gradmux.orchestrator.record import Header, Line, MemoryRecord, RoundLine, Sent
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, FloatArray
from gradmux.orchestrator.simulate import PIPELINE_MODELS, NoTrainer, Simulation, SimulationOptions


@dataclass(frozen=True, slots=True)
class PlayedSegment:
    """One segment."""

    choice: Choice
    begin: int
    """steps of each model that were done before"""
    end: int
    """and after it"""
    took_s: float
    """seconds; where another segment follows, with the wait for all answers"""
    measures: bool


@dataclass(frozen=True, slots=True)
class AutoSimulation:
    """The whole run, and what it was made of."""

    whole: Simulation
    segments: tuple[PlayedSegment, ...]
    looks: tuple[Choice, ...]
    """what was decided, in order, confirmations included"""

    @property
    def measured_s(self) -> float:
        """Seconds before the first choice."""
        return sum(segment.took_s for segment in self.segments if segment.measures)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a simulation's, with the segments."""
        return self.whole.to_dict() | {"segments": [asdict(segment) for segment in self.segments]}


@dataclass(frozen=True, slots=True)
class _Played:
    """What is left of a segment."""

    told: PlayedSegment
    lines: Sequence[Line]
    workers: int
    delay: int
    summary: RunSummary
    busy_s: float
    peak: int
    applied_s: float
    """when the last gradient was applied"""
    over_s: float
    """when the last answer was in"""
    looks: tuple[Choice, ...]

    @property
    def rounds(self) -> list[RoundLine]:
        """Those that closed."""
        return [line for line in self.lines if isinstance(line, RoundLine)]


def job_of(options: SimulationOptions, columns: int) -> AutoJob:
    """The job that these options describe, over a profile of so many columns. Raises: ConfigError."""
    models, workers = options.models or PIPELINE_MODELS, min(options.workers or columns, options.passes or columns)
    if options.jobs % models:
        raise ConfigError(f"--jobs {options.jobs}: auto needs a multiple of the {models} models (--models)")
    return AutoJob(
        models=models,
        steps=options.jobs // models,
        workers=workers,
        concurrency=options.limits.concurrency or workers,
        closing=Closing(in_flight_cap=options.limits.in_flight_cap, harvest_late=options.limits.harvest_late),
        seed=options.seed,
        hour_usd=options.worth.hour_usd,
        passes=options.passes,
        attempts=options.limits.attempts,
        timeout_s=options.failures.timeout_s,
    )


def simulate_auto(
    delays_s: FloatArray,
    job: AutoJob,
    load: LoadModel,
    pilot: Pilot | None = None,
    failures: Failures | None = None,
) -> AutoSimulation:
    """Plays a run of `job` over `delays_s` (rounds, columns) seconds; `pilot`: a fresh one of the caller's own;
    `failures`: when calls that fail are found.

    Raises: ConfigError when the profile has fewer columns than the job has workers.
    """
    pilot, done, now_s = pilot or Pilot(job), 0, 0.0
    played: list[_Played] = []
    looks: list[Choice] = []
    while done < job.steps:
        table = partial(DelayTable, delays_s, seed=job.seed, failures=failures or Failures(job.timeout_s))
        this = _play(pilot, pilot.next_segment((done,) * job.models), done, now_s, table, load)
        played.append(this)
        done, now_s = this.told.end, this.over_s
        choice = pilot.learn(this.lines) if done < job.steps else None
        looks += [*this.looks, *([] if choice is None else [choice])]
    return AutoSimulation(_whole(played, job, load), tuple(this.told for this in played), tuple(looks))


def _play(
    pilot: Pilot, segment: Segment, done: int, now_s: float, table: Callable[..., DelayTable], load: LoadModel
) -> _Played:
    """A segment to its end, or to the step at which the pilot wants something else; `table`: for n and a first row."""
    job, choice, record, looks = pilot.job, segment.choice, MemoryRecord(), list[Choice]()
    plan = JobPlan(job.models, segment.end, first=done * job.models)
    context = Context(
        choice.workers,
        plan.jobs,
        job.models,
        seed=job.seed,
        concurrency=job.concurrency,
        worth=worth_of_job(job),
        passes=job.passes,
    )
    scheme = build_scheme(choice.scheme, choice.params, context)
    fleet = ProfileFleet(table(workers=scheme.workers, first=plan.first), load, start_s=now_s)

    watched = Watched(pilot, segment, record, looks.append, job.steps)

    def look() -> None:
        if watched.over():
            loop.shorten()

    limits = replace(limits_of(job.closing, job.concurrency), attempts=job.attempts)
    loop = Loop(
        plan=plan,
        rounds=Rounds(scheme, plan, Earliest(), limits),
        fleet=fleet,
        trainer=NoTrainer(),
        recorder=record,
        should_stop=look,
    )
    record.write(Header("", scheme.name, {}, scheme.workers, job.models, segment.end, job.seed, {}, {}, plan.first))
    loop.run()
    applied_s = fleet.now()
    summary = loop.drain(math.inf)
    ended_s = applied_s if loop.steps == job.steps else fleet.now()
    told = PlayedSegment(choice, done, loop.steps, ended_s - now_s, segment.measures)
    return _Played(
        told,
        record.lines,
        scheme.workers,
        scheme.delay,
        summary,
        fleet.busy_s,
        fleet.peak,
        applied_s,
        ended_s,
        tuple(looks),
    )


def _whole(played: Sequence[_Played], job: AutoJob, load: LoadModel) -> Simulation:
    """All segments as one run."""
    rounds = [line for this in played for line in this.rounds]
    total_s = played[-1].applied_s
    return Simulation(
        scheme=AUTO,
        params={},
        workers=job.workers,
        jobs=job.models * job.steps,
        models=job.models,
        rounds=len(rounds),
        delay=max(this.delay for this in played),
        load=max(line.load for line in rounds) if load.load is None else load.load,
        durations=tuple(line.end_s - line.start_s for line in rounds),
        total_s=total_s,
        waits=0,
        dropped=tuple(line.late for line in rounds),
        in_flight_mean=sum(this.busy_s for this in played) / total_s if total_s > 0 else 0.0,
        in_flight_max=max(this.peak for this in played),
        left_in_flight_max=max(line.in_flight for line in rounds),
        billed_s=sum(this.summary.billed_s for this in played),
        invocations=sum(len(group.workers) for this in played for line in this.lines for group in _sent(line)),
        concurrency=job.concurrency,
        max_residual=max(this.summary.max_residual for this in played),
        max_amplification=max(this.summary.max_amplification for this in played),
        lines=tuple(rounds),
    )


def _sent(line: Line) -> tuple[Sent, ...]:
    return () if isinstance(line, Header) else line.sent
