"""What a job will cost, before anybody is called: its scheme played over delays in virtual time, all calls billed.

The simulator is the run's own loop, so late and redundant work is in it, and calls that fail in the profile. What the
work of one task is (`Work`) was measured elsewhere. Knows no files, no models and no CLI. Read next: `simulate.py`;
`job.py` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradmux.orchestrator.fleets.mailbox import pause_s
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.jobs import Plan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.ports import Arrival, Invocation, StepResult
from gradmux.orchestrator.prices import GB, OBJECTS, Prices
from gradmux.orchestrator.record import Recorder
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.scheme import FloatArray, Scheme, Task
from gradmux.orchestrator.simulate import NoTrainer

ROUNDED_S = 0.0005
"""AWS bills whole milliseconds, rounded up: half of one more a call, on average."""
CANCEL_LOOK_S = 2.0
"""A worker looks for the run's cancel marker so often, at most."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What a played run came to. Counts are not whole where only the beginning of the run was played."""

    invocations: float = 0.0
    tasks: float = 0.0
    """tasks of all invocations"""
    results: float = 0.0
    """that were combined in decodes"""
    jobs: float = 0.0
    rounds: float = 0.0
    billed_s: float = 0.0
    """of all calls, late ones too"""
    wall_s: float = 0.0

    def times(self, factor: float) -> Calls:
        """So many of them."""
        return Calls(*(factor * value for value in self._values()))

    def __add__(self, other: Calls) -> Calls:
        return Calls(*(mine + theirs for mine, theirs in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> list[float]:
        return [getattr(self, name) for name in self.__slots__]


@dataclass(frozen=True, slots=True)
class Work:
    """One task as a worker was seen to do it, on average over the models."""

    slope_s: float
    """seconds per unit of load (one whole batch)"""
    puts: float = 0.0
    """S3 requests of one task"""
    gets: float = 0.0


@dataclass(frozen=True, slots=True)
class Storing:
    """What a run keeps in S3 besides what its tasks read and write."""

    puts_per_job: float = 0.0
    """the snapshot, where it is too large for a request"""
    fetched: bool = False
    """the client fetches each result that a task put there"""
    mailed: bool = False
    """workers answer through S3, where the client looks for answers"""
    slices: int = 0
    """workers sum the gradient there, each so much of it; 0: the client sums"""
    sent_per_task: float = 0.0
    """bytes of its result that the client gets, and so leave AWS"""
    sent_per_job: float = 0.0
    """bytes that it gets of each gradient which workers have summed"""
    slice_s: float = 0.0
    """what one result's part of a slice takes, seconds"""
    fetch_gets: int = 0
    """requests by which each worker fetches the rows, once, where they are few enough to be kept whole"""
    fetch_s: float = 0.0
    """what that takes, seconds"""


@dataclass(frozen=True, slots=True)
class Bill:
    """What it comes to."""

    invocations: float
    billed_s: float
    gb_s: float
    compute_usd: float
    requests_usd: float
    s3_usd: float
    out_usd: float = 0.0
    """data out of AWS, to a client elsewhere"""

    @property
    def lambda_usd(self) -> float:
        """What `max_cost_usd` is held against."""
        return self.compute_usd + self.requests_usd

    @property
    def usd(self) -> float:
        return self.lambda_usd + self.s3_usd + self.out_usd


@dataclass(frozen=True, slots=True)
class Seen:
    """What workers were asked."""

    task: Task
    """the heaviest"""
    load: float
    """of it, a fraction of one batch"""
    early: bool
    """are there early messages?"""


class CountingFleet:
    """`ports.Fleet` over a profile that looks at what is asked."""

    def __init__(self, fleet: ProfileFleet, chunk_sizes: FloatArray) -> None:
        self._fleet, self._sizes = fleet, chunk_sizes
        self.tasks = 0
        self._heaviest: tuple[bool, float, Task] | None = None
        """is it computed twice, to compare; its load; itself"""
        self._early = False

    @property
    def seen(self) -> Seen:
        assert self._heaviest is not None, "every job has tasks"
        _, load, task = self._heaviest
        return Seen(task, load, self._early)

    def now(self) -> float:
        return self._fleet.now()

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        for call in invocations:
            self._early |= bool(call.early)
            for task in filter(None, call.slots):
                self.tasks += 1
                weight = task.skip is not None, float(self._sizes[list(task.chunks)].sum())
                if self._heaviest is None or weight > self._heaviest[:2]:
                    self._heaviest = (*weight, task)
        return self._fleet.invoke(invocations)

    def next(self, until_s: float | None) -> Arrival | None:
        return self._fleet.next(until_s)

    def close(self) -> None:
        self._fleet.close()


class _CountingTrainer(NoTrainer):
    """Counts what is combined."""

    def __init__(self) -> None:
        self.results = 0

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        self.results += len(results)
        return super().step(job, results)


class NoRecord:
    """`record.Recorder` that keeps nothing."""

    def write(self, line: object) -> None:
        """Nobody will replay this."""


def play(
    scheme: Scheme, rounds: Rounds, plan: Plan, table: DelayTable, load: LoadModel, recorder: Recorder | None = None
) -> tuple[Calls, Seen]:
    """The run in virtual time, and what its workers were asked.

    Raises RunStopped when it would not come to its end under these delays.
    """
    fleet, trainer = CountingFleet(ProfileFleet(table, load), scheme.chunk_sizes), _CountingTrainer()
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=recorder or NoRecord())
    played = loop.run()
    billed_s = loop.drain(patience_s=float("inf")).billed_s
    calls = Calls(
        invocations=played.invocations,
        tasks=fleet.tasks,
        results=trainer.results,
        jobs=plan.jobs,
        rounds=played.rounds,
        billed_s=billed_s,
        wall_s=played.wall_s,
    )
    return calls, fleet.seen


def bill(calls: Calls, work: Work, storing: Storing, workers: int, memory_mb: int, prices: Prices) -> Bill:
    """What these calls cost. `workers`: n, each of which looks for the cancel marker and may fetch the rows once."""
    sums = calls.jobs * storing.slices
    invocations = calls.invocations + sums
    billed_s = calls.billed_s + calls.results * storing.slices * storing.slice_s + invocations * ROUNDED_S
    billed_s += workers * storing.fetch_s
    puts, gets = _s3_requests(calls, work, storing, workers)
    return Bill(
        invocations=invocations,
        billed_s=billed_s,
        gb_s=billed_s * memory_mb / 1024,
        compute_usd=prices.compute_usd(billed_s, memory_mb),
        requests_usd=prices.requests_usd(round(invocations)),
        s3_usd=(puts * prices.thousand_puts + gets * prices.thousand_gets) / OBJECTS,
        out_usd=(calls.tasks * storing.sent_per_task + calls.jobs * storing.sent_per_job) / GB * prices.out_gb,
    )


def _s3_requests(calls: Calls, work: Work, storing: Storing, workers: int) -> tuple[float, float]:
    """(puts, gets) of the whole run. Listing costs as much as putting."""
    puts = calls.tasks * work.puts + calls.jobs * storing.puts_per_job
    gets = calls.tasks * work.gets + workers * storing.fetch_gets
    gets += min(calls.tasks, workers * (1 + calls.wall_s / CANCEL_LOOK_S))
    if storing.fetched:
        gets += calls.tasks * work.puts
    if storing.mailed and calls.rounds:
        puts += calls.invocations + calls.rounds * looks(calls.wall_s / calls.rounds)
        gets += calls.invocations
    gets += calls.results * storing.slices + calls.jobs * storing.slices
    puts += calls.jobs * storing.slices
    return puts, gets


def looks(duration_s: float) -> int:
    """How often the client looks for what it expects in S3, when that takes so long."""
    age_s, count = 0.0, 0
    while age_s < duration_s:
        age_s += pause_s(age_s)
        count += 1
    return count
