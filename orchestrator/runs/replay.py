"""A run's record -> the same decisions once more, or the first that differs.

The loop is played anew over what was recorded: the same scheme, policies and plan, `ReplayFleet` in place of workers,
and the recorded answers in place of what a lazy scheme asks. A record holds stretches, each under a header: lives of
a run, and within a life the segments of `auto`. A life that was stopped or killed is compared as far as its record
reaches. Knows no backend, no data and no tensors. Read next: `loop.py`, `fleets/replay_fleet.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from msgspec import structs

from gradmux.orchestrator.auto import AUTO
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.distances import RecordedDistances, ReplayedDistances
from gradmux.orchestrator.errors import ConfigError, GradmuxError
from gradmux.orchestrator.fleets.replay_fleet import ReplayFleet
from gradmux.orchestrator.jobs import OpenPlan, Plan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.policies import Backup, Earliest, Limits, Mu, WaitPolicy
from gradmux.orchestrator.ports import StepResult
from gradmux.orchestrator.record import (
    Decoded,
    EndLine,
    Header,
    Line,
    MemoryRecord,
    RecordError,
    RoundLine,
    read_record,
)
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.history import DONE, MOST, PASSES, WORTH
from gradmux.orchestrator.runs.keep import read_job
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.prepare import model_plans
from gradmux.orchestrator.schemes.registry import build_scheme, get
from gradmux.orchestrator.schemes.scheme import Context, Scheme
from gradmux.orchestrator.schemes.worth import Worth
from gradmux.orchestrator.simulate import NoTrainer
from gradmux.orchestrator.start import start_for
from gradmux.orchestrator.training.plain_descent import learning_rates


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that a replay takes otherwise."""

    life: int
    """of the run, from 1"""
    round: int | None
    """None: after the last recorded round, or none of them"""
    job: int | None
    """None: the decision is about the round"""
    what: str
    recorded: str
    replayed: str

    def describe(self) -> str:
        """One line."""
        place = [f"life {self.life}", "the end" if self.round is None else f"round {self.round}"]
        place += [] if self.job is None else [f"job {self.job}"]
        return f"{', '.join(place)}: {self.what}: {self.recorded} in the record, {self.replayed} in the replay"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was played again, up to the first difference."""

    lives: int
    stretches: int
    """lives, and segments of `auto` within them"""
    rounds: int
    jobs: int
    """gradients, each time that one was decoded"""
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What is recorded under one header."""

    life: int
    header: Header
    lines: Sequence[RoundLine | EndLine]
    """until the first line that ends it: what came later was only billed"""
    steps: int | None
    """of each model when the next segment of the same life began; None: there is none"""

    @property
    def whole(self) -> bool:
        """Was it played to its end?"""
        return bool(self.lines) and isinstance(self.lines[-1], EndLine) and self.lines[-1].state == "done"

    @property
    def made(self) -> Mapping[int, int]:
        """Job -> steps that it came to, where jobs may have several."""
        return {each.job: each.steps for line in self.lines for each in line.decoded if MOST in self.header.extra}

    @property
    def rounds(self) -> list[RoundLine]:
        return [line for line in self.lines if isinstance(line, RoundLine)]


def replay_run(paths: RunPaths) -> Replayed:
    """All decisions of a run, anew. Raises: as `replay`, FolderError."""
    return replay(read_job(paths), read_record(paths.record) if paths.record.exists() else ())


def replay(config: JobConfig, lines: Iterable[Line]) -> Replayed:
    """Plays every stretch of the record of a run of the job `config`, until one differs.

    Raises: RecordError when the record does not begin with a header; ConfigError when its scheme cannot be built.
    """
    stretches = rounds = jobs = life = 0
    for stretch in _stretches(lines):
        stretches, life = stretches + 1, stretch.life
        rounds += len(stretch.rounds)
        jobs += sum(len(line.decoded) for line in stretch.lines)
        difference = _first_difference(stretch, config)
        if difference is not None:
            return Replayed(life, stretches, rounds, jobs, difference)
    return Replayed(life, stretches, rounds, jobs, None)


# --- stretches ----------------------------------------------------------------------------------------------------


def _stretches(lines: Iterable[Line]) -> Iterator[_Stretch]:
    found: list[tuple[Header, list[RoundLine | EndLine]]] = []
    for line in lines:
        if isinstance(line, Header):
            found.append((line, []))
        elif not found:
            raise RecordError("the record does not begin with a description of the run")
        elif not (found[-1][1] and isinstance(found[-1][1][-1], EndLine)):
            found[-1][1].append(line)
    life = 0
    for index, (header, its) in enumerate(found):
        before = found[index - 1][0] if index else None
        life += before is None or before.epoch != header.epoch
        after = found[index + 1][0] if index + 1 < len(found) else None
        goes_on = after is not None and after.epoch == header.epoch
        yield _Stretch(life, header, its, min(_done(after)) if goes_on and after is not None else None)


def _done(header: Header) -> tuple[int, ...]:
    return tuple(int(steps) for steps in header.extra.get(DONE, (0,) * header.models))


# --- playing one ---------------------------------------------------------------------------------------------------


def _play(stretch: _Stretch, config: JobConfig) -> tuple[list[RoundLine | EndLine], GradmuxError | None]:
    """The lines that the loop makes over it, and what ended the loop before it was done."""
    header, record = stretch.header, MemoryRecord()
    start = start_for(get(header.scheme), _done(header), header.steps, header.extra.get(MOST, ()))
    if start.finished:
        return list(stretch.lines), None
    answers = (answer for line in stretch.rounds for answer in line.asked)
    distances = RecordedDistances(ReplayedDistances(answers, cut_off=not stretch.whole))
    scheme = _scheme(header, start.plan, config, distances)
    fleet = ReplayFleet(stretch.lines, cut_off=not stretch.whole)
    rounds = Rounds(scheme, start.plan, _wait(header), _limits(header), already=start.already, epoch=header.epoch)
    trainer = _Watching(start.plan, stretch.made)

    def shorten() -> None:
        """A segment that was left early ends where it did: with the furthest step that any model had begun."""
        if stretch.steps is not None and trainer.furthest + 1 == stretch.steps < start.plan.steps:
            loop.shorten()

    loop = Loop(
        plan=start.plan,
        rounds=rounds,
        fleet=fleet,
        trainer=trainer,
        recorder=record,
        asked=distances.take,
        should_stop=shorten,
    )
    error: GradmuxError | None = None
    try:
        loop.run()
        loop.drain(math.inf)
    except GradmuxError as ended:
        error = ended
    return [line for line in record.lines if not isinstance(line, Header)], error


class _Watching(NoTrainer):
    """No models; how far they have begun."""

    def __init__(self, plan: Plan, made: Mapping[int, int]) -> None:
        """`made`: job -> the steps that it came to."""
        self._plan, self._made, self.furthest = plan, made, -1

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        told = super().step(job, results)
        return replace(told, steps=self._made[job]) if job in self._made else told

    def publish(self, job: int) -> None:
        self.furthest = max(self.furthest, self._plan.step(job))


def _scheme(header: Header, plan: Plan, config: JobConfig, distances: RecordedDistances) -> Scheme:
    plans = model_plans(config, Materials())
    context = Context(
        workers=int(header.extra.get(AUTO, {}).get("workers", config.cluster.most_workers)),
        jobs=plan.most_jobs,
        models=plan.models,
        seed=header.seed,
        concurrency=config.cluster.concurrency,
        samples=config.data.batch_size,
        rates=() if isinstance(plan, OpenPlan) else learning_rates([plans[plan.model(j)] for j in range(plan.models)]),
        distances=distances,
        worth=Worth.of(header.extra.get(WORTH, {"hour_usd": math.inf})),
        longest_s=config.cluster.timeout_s / 3,
        passes=header.extra.get(PASSES),
    )
    return build_scheme(header.scheme, header.params, context)


def _wait(header: Header) -> WaitPolicy:
    given = {name: value for name, value in header.wait.items() if name != "policy"}
    return Mu(**_known(given, Mu, "wait")) if header.wait.get("policy") == "mu" else Earliest()


def _limits(header: Header) -> Limits:
    given = dict(header.limits)
    if isinstance(given.get("backup"), Mapping):
        given["backup"] = Backup(**_known(given["backup"], Backup, "limits.backup"))
    return Limits(**_known(given, Limits, "limits"))


def _known(given: Mapping[str, Any], kind: type[Any], where: str) -> dict[str, Any]:
    """Raises ConfigError for a limit that this version has not: without it decisions would differ."""
    unknown = sorted(set(given) - {each.name for each in fields(kind)})
    if unknown:
        raise ConfigError(f"the record was written by another version: its {where} have {', '.join(unknown)}")
    return dict(given)


# --- comparing -----------------------------------------------------------------------------------------------------


def _first_difference(stretch: _Stretch, config: JobConfig) -> Difference | None:
    played, error = _play(stretch, config)
    for index, line in enumerate(stretch.lines):
        place = line.round if isinstance(line, RoundLine) else None
        other = played[index] if index < len(played) else None
        if other is None or type(other) is not type(line):
            end = "the run ends" if error is None else str(error).partition("\n")[0]
            told = f"round {line.round} closes" if isinstance(line, RoundLine) else "the run ends"
            replays = f"round {other.round} closes" if isinstance(other, RoundLine) else end
            return Difference(stretch.life, place, None, "what happens next", told, replays)
        found = _between(line, other, error, whole=stretch.whole)
        if found is not None:
            return Difference(stretch.life, place, *found)
    return None


Found = tuple[int | None, str, str, str]
"""job, what, as recorded, as replayed"""
ROUND_FIELDS = {
    "round": "which round closes",
    "start_s": "its start in s",
    "sent": "what is sent",
    "arrivals": "which answers count",
    "late": "late workers",
    "waited": "whether it waits past the cut",
    "in_flight": "invocations in flight at its close",
    "end_s": "its close in s",
    "load": "its load",
    "asked": "what the scheme asks",
}


def _between(
    line: RoundLine | EndLine, other: RoundLine | EndLine, error: Exception | None, whole: bool
) -> Found | None:
    """What differs first, jobs before the rounds that they close."""
    cut = isinstance(line, EndLine) and not whole
    jobs = _between_jobs(line.decoded, other.decoded, cut)
    if jobs is not None:
        return jobs
    if isinstance(line, RoundLine) and isinstance(other, RoundLine):
        for name, what in ROUND_FIELDS.items():
            here, there = getattr(line, name), getattr(other, name)
            if here != there:
                return None, what, *_shown(here, there)
        return None
    if cut:
        return None  # what the replay does beyond, the run had no time for
    if isinstance(other, EndLine) and (other.state != "done" or error is not None):
        return None, "how it ends", "done", str(error or other.reason).partition("\n")[0]
    if line.sent != other.sent or line.arrivals != other.arrivals:
        return None, "what is sent and heard after the last round", *_shown(line.sent, other.sent)
    return None


def _between_jobs(recorded: Sequence[Decoded], replayed: Sequence[Decoded], cut: bool) -> Found | None:
    for index, item in enumerate(recorded):
        if index >= len(replayed):
            return item.job, "when it is decoded", "here", "later or never"
        other = replayed[index]
        if _bare(item) != _bare(other):
            return item.job, "its decode", *_shown(_told(item), _told(other))
    if len(replayed) > len(recorded) and not cut:
        return replayed[len(recorded)].job, "when it is decoded", "later or never", "here"
    return None


def _bare(item: Decoded) -> Decoded:
    """Without what only tensors, or the clock while they were added, can tell."""
    return structs.replace(
        item, at_s=0.0, loss=0.0, count=0, correct=0, gradient_norm=0.0, earlier=(), metrics=(), buffers_stayed=False
    )


def _told(item: Decoded) -> str:
    return f"job {item.job} from {item.results} results with weights {item.weights_crc:08x}"


def _shown(recorded: Any, replayed: Any) -> tuple[str, str]:
    """Both, short; of two sequences the first items that differ."""
    if isinstance(recorded, tuple) and isinstance(replayed, tuple):
        same = next((i for i, pair in enumerate(zip(recorded, replayed, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(recorded), len(replayed)) if same is None else same
        recorded, replayed = (str(each[at]) if at < len(each) else "nothing" for each in (recorded, replayed))
    return str(recorded)[:LONGEST], str(replayed)[:LONGEST]


LONGEST = 200
"""letters of a value that are shown"""
