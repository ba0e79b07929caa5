"""Plays a scheme's sample round by round: who computes what, who answers, and which results decode which job.

A scheme that could not go on without a straggler is shown waiting for it (or invoking it again). Lazy schemes get made-
up distances, in which the first third of the workers hold the data whose gradient moves. Pure data for `text.py`, which
draws it, and for JSON. Read next: `text.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.scheme import Context, Key, Sample, Scheme, Task

FAR = 1_000_000
"""steps that the models of a sample have before them"""


class State(StrEnum):
    """What became of a task in its own round."""

    ANSWERED = "answered"
    LATE = "late"
    """no answer, and the round ended without it"""
    AWAITED = "awaited"
    """no answer at first, but the round could not end without it: waited for, or invoked again"""
    UNCHANGED = "unchanged"
    """the worker found nothing new to send"""


@dataclass(frozen=True, slots=True)
class DrawnTask:
    """One task of one round."""

    worker: int
    slot: int
    task: Task
    state: State


@dataclass(frozen=True, slots=True)
class DrawnDecode:
    """How one job's gradient is put together."""

    job: int
    weights: Mapping[Key, float]
    missing: float
    """share of the gradient that is missing or was guessed; 0: exact"""


@dataclass(frozen=True, slots=True)
class DrawnRound:
    """What was asked in a round and what could be decoded when it ended."""

    round: int
    tasks: tuple[DrawnTask, ...]
    decodes: tuple[DrawnDecode, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A sample, played."""

    sample: Sample
    workers: int
    """n, as the scheme has it"""
    chunk_sizes: tuple[float, ...]
    """(chunks,) fractions of the batch"""
    rounds: tuple[DrawnRound, ...]
    lazy: bool
    """True: who was asked follows from made-up distances"""
    steps: int = 1
    """of its model that each job has, made in a row by every worker that has it"""


def draw(scheme: Scheme, sample: Sample) -> Drawing:
    """Plays `scheme`, which was built for `context_of(sample)`, as the sample says. Raises: SchemeFault."""
    scheme = Checked.of(scheme)
    steps = scheme.stretch(0, FAR)
    rounds = tuple(_play(scheme, sample, t) for t in range(min(sample.rounds, scheme.rounds)))
    return Drawing(sample, scheme.workers, tuple(scheme.chunk_sizes.tolist()), rounds, scheme.reuses_results, steps)


def context_of(sample: Sample) -> Context:
    """What to build the scheme for."""
    return Context(
        workers=sample.workers,
        jobs=sample.rounds,
        models=sample.models,
        concurrency=sample.concurrency,
        distances=MadeUp(sample.models, sample.workers),
        rates=(1.0,) * sample.models,
    )


class MadeUp:
    """`Distances` of a model whose weights move by 1 in every step; the gradients of a third of the shards follow."""

    def __init__(self, models: int, workers: int) -> None:
        self._models, self._workers = models, workers

    def weights(self, job: int, other: int) -> float:
        return ((job - other) / self._models) ** 2

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        first, before = min(one), min(other)
        lively = min(key.worker for key in one) * 3 < self._workers
        return (1.0 if lively else 0.01) * self.weights(first.round, before.round)


def _play(scheme: Scheme, sample: Sample, t: int) -> DrawnRound:
    assignment = scheme.assign(t)
    keys = {
        Key(t, worker, slot): task
        for worker, slots in sorted(assignment.items())
        for slot, task in enumerate(slots)
        if task is not None
    }
    states = dict(_first_answers(scheme, sample, keys))
    if not scheme.may_start(t + 1):
        wanted = set(scheme.wanted(t))
        for key in [key for key, state in states.items() if state is State.LATE and key.worker in wanted]:
            states[key] = State.AWAITED
            scheme.heard(key)
    tasks = tuple(DrawnTask(key.worker, key.slot, keys[key], state) for key, state in states.items())
    return DrawnRound(t, tasks, tuple(_decodes(scheme, t)))


def _first_answers(scheme: Scheme, sample: Sample, keys: Mapping[Key, Task]) -> Iterator[tuple[Key, State]]:
    """Tells the scheme of every answer but those that the sample holds back."""
    last = max((task.message for task in keys.values()), default=0)
    for key, task in keys.items():
        if key.worker in sample.late.get(key.round, ()) and task.message == last:
            yield key, State.LATE
        elif task.skip is not None and key.worker in sample.unchanged.get(key.round, ()):
            scheme.skipped(key)
            yield key, State.UNCHANGED
        else:
            scheme.heard(key)
            yield key, State.ANSWERED


def _decodes(scheme: Scheme, t: int) -> Iterator[DrawnDecode]:
    for job in scheme.end_round(t):
        decoding = scheme.decode(job)
        yield DrawnDecode(job, decoding.weights, decoding.missing)
