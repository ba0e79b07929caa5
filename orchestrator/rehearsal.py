"""Does a scheme keep what it promises? Played by the loop itself over made-up delays, before any worker is invoked.

Every answer is its task's row over the chunks, so that what the loop combines must be 1 at every chunk: whatever the
scheme says of itself, and on whichever way results are added. Each run is played three times: twice alike, which must
give the same rounds and decodes, and once with questions in between and answers told twice, which must change nothing.
Read next: `schemes/checked.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gradmux.orchestrator.errors import SchemeFault, TaskFailed
from gradmux.orchestrator.fleets.profile_fleet import DelayTable, LoadModel, ProfileFleet
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.record import MemoryRecord, RoundLine, Sent
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.asks import Place
from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.document import drawn_with, sample_with
from gradmux.orchestrator.schemes.drawing import context_of
from gradmux.orchestrator.schemes.registry import OURS, build_scheme
from gradmux.orchestrator.schemes.scheme import MAX_RESIDUAL, Context, FloatArray, Key, Params, SchemeInfo

FEWEST_JOBS = 6
"""jobs that are played, and at least twice as many as a job's rounds"""
FEW_WORKERS = 64
"""up to so many all patterns are played"""
ASKED = 16
"""of a round's answers, after which the nosy run asks"""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What was played; the fields are those of `gradmux schemes NAME --check --json`."""

    name: str
    params: Params
    workers: int
    jobs: int
    rounds: int
    """of all runs"""
    decodes: int
    max_residual: float
    max_amplification: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def describe(self) -> str:
        """In words."""
        played = f"{self.rounds} rounds and {self.decodes} decodes of {self.jobs} jobs on {self.workers} workers"
        return (
            f"{self.name} keeps what it promises: {played}, each run twice alike and once with questions in between; "
            f"residual at most {self.max_residual:.1e}, amplification at most {self.max_amplification:.2f}"
        )


@dataclass(frozen=True, slots=True)
class _Run:
    sent: tuple[tuple[Sent, ...], ...]
    """by round line"""
    decoded: tuple[tuple[int, int], ...]
    """job and weights' CRC, in order"""
    rounds: int
    max_residual: float
    max_amplification: float


_passed: set[tuple[str, tuple[tuple[str, Any], ...], int, int]] = set()


def rehearse_plugin(name: str, params: Params, context: Context) -> None:
    """Rehearses a scheme from elsewhere, once for each set of parameters, n and M. Raises: as `rehearse`."""
    key = name, tuple(sorted(params.items())), context.workers, context.models
    if name not in OURS and key not in _passed:
        rehearse(name, params, context)
        _passed.add(key)


def rehearse_sample(info: SchemeInfo, given: dict[str, str], workers: int | None) -> Rehearsal:
    """Draws its own sample, if it has one, and rehearses that with these parameters. Raises: as `rehearse`."""
    drawn_with(info, {}, None)
    sample = sample_with(info, given, workers)
    return rehearse(info.name, sample.params, context_of(sample))


def rehearse(name: str, params: Params, context: Context) -> Rehearsal:
    """Plays the scheme for a context like this one. Raises: SchemeFault of exit code 2, ConfigError."""
    try:
        return _rehearse(name, params, context)
    except SchemeFault as fault:
        raise fault.before_any_worker() from fault.__cause__


def _rehearse(name: str, params: Params, context: Context) -> Rehearsal:
    first = Checked.of(build_scheme(name, params, context))
    models = context.models if first.overlapping else first.delay + 1
    steps = -(-max(FEWEST_JOBS, 2 * (first.delay + 1)) // models)
    context = replace(context, models=models, jobs=models * steps, distances=None)
    runs: list[_Run] = []
    for delays_s in _delays(first.workers, context.jobs + first.delay):
        run, again = (_play(name, params, context, delays_s, nosy=False) for _ in range(2))
        _require_same(name, run, again, "the same events and seed led to different %s")
        nosy = _play(name, params, context, delays_s, nosy=True)
        _require_same(name, run, nosy, "asked between answers, and told them twice, it came to different %s")
        runs.append(run)
    return Rehearsal(
        name=name,
        params=dict(params),
        workers=first.workers,
        jobs=context.jobs,
        rounds=sum(run.rounds for run in runs),
        decodes=sum(len(run.decoded) for run in runs),
        max_residual=max(run.max_residual for run in runs),
        max_amplification=max(run.max_amplification for run in runs),
    )


def _delays(workers: int, rounds: int) -> list[FloatArray]:
    """(rounds, n) seconds: no worker late, one worker late in each round, and heavy tails."""
    rng = np.random.default_rng(0)
    even = rng.uniform(1.0, 1.1, (rounds, workers))
    one_late = even.copy()
    one_late[np.arange(rounds), rng.integers(workers, size=rounds)] += 7.0
    tails = even + rng.exponential(1.0, even.shape) ** 3
    return [even, one_late, tails] if workers <= FEW_WORKERS else [tails]


def _play(name: str, params: Params, context: Context, delays_s: FloatArray, *, nosy: bool) -> _Run:
    plan = JobPlan(context.models, context.jobs // context.models)
    built = build_scheme(name, params, context)
    rounds = Rounds(Nosy(built, plan.model) if nosy else built, plan, Earliest(), Limits())
    scheme, record = rounds.scheme, MemoryRecord()
    fleet = ProfileFleet(DelayTable(delays_s, scheme.workers), LoadModel(), _Answers(len(scheme.chunk_sizes)))
    trainer = _Ones(scheme)
    loop = Loop(plan=plan, rounds=rounds, fleet=fleet, trainer=trainer, recorder=record, held=Held(_RowSums()))
    try:
        played = loop.run()
        loop.drain(patience_s=float("inf"))
    except TaskFailed as failed:
        raise SchemeFault(scheme.name, f"round {failed.round}", f"it does not go on: {failed}") from failed
    lines = [line for line in record.lines if isinstance(line, RoundLine)]
    decoded = [each for line in record.lines for each in getattr(line, "decoded", ())]
    return _Run(
        sent=tuple(line.sent for line in lines),
        decoded=tuple((each.job, each.weights_crc) for each in decoded),
        rounds=played.rounds,
        max_residual=played.max_residual,
        max_amplification=played.max_amplification,
    )


def _require_same(name: str, one: _Run, other: _Run, told: str) -> None:
    for t, (sent, again) in enumerate(zip(one.sent, other.sent, strict=False)):
        if sent != again:
            raise SchemeFault(name, f"round {t}", told % "assignments")
    for (job, crc), (other_job, other_crc) in zip(one.decoded, other.decoded, strict=False):
        if (job, crc) != (other_job, other_crc):
            raise SchemeFault(name, f"job {job}", told % "decodes")
    if len(one.sent) != len(other.sent) or len(one.decoded) != len(other.decoded):
        raise SchemeFault(name, "", told % "runs")


class Nosy(Checked):
    """Asks all it may between answers, and tells answers twice."""

    def heard(self, key: Key) -> None:
        super().heard(key)
        super().heard(key)
        if key.worker % max(1, self.workers // ASKED):
            return
        for job in range(max(0, key.round - self.delay), min(key.round + 1, self.jobs)):
            self.decodable(job)
        self.keeps()
        self.needs_weights()
        if not self.overlapping and key.round == self.latest:
            self.may_start(key.round + 1)


class _Answers:
    """What workers would send: each task's row, (chunks,)."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks

    def __call__(self, call: Invocation) -> Mapping[int, Any]:
        return {slot: self._row(task) for slot, task in enumerate(call.slots) if task is not None}

    def _row(self, task: Any) -> FloatArray:
        row = np.zeros(self._chunks)
        row[list(task.chunks)] = task.coefficients
        return row


class _RowSums:
    """`ports.Sums` over rows."""

    def __init__(self) -> None:
        self._sums: dict[int, FloatArray] = {}

    def add(self, place: Place, result: FloatArray) -> None:
        self._sums[place.job] = self._sums.get(place.job, np.zeros_like(result)) + result

    def take(self, job: int) -> FloatArray:
        return self._sums.pop(job)


class _Ones:
    """`ports.Trainer` that looks whether what is combined is 1 at every chunk."""

    def __init__(self, scheme: Checked) -> None:
        self._scheme = scheme

    def publish(self, job: int) -> None:
        """There are no weights."""

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        total = sum(weight * row for row, weight in results)
        error = np.abs(total - np.ones(len(self._scheme.chunk_sizes)))
        if self._scheme.exact and not error.max() <= 2 * MAX_RESIDUAL:
            chunk = int(error.argmax())
            raise SchemeFault(
                self._scheme.name, f"job {job}", f"what is combined misses chunk {chunk} by {error[chunk]:.1e}"
            )
        return StepResult(loss=0.0, count=0, correct=0, gradient_norm=0.0)

    def retire(self, job: int) -> None:
        """There are no snapshots."""
