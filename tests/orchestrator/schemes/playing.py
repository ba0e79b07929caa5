"""Plays a scheme round by round, in lockstep, with given stragglers, and checks every decode against real gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache

import numpy as np

from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import (
    BoolArray,
    Context,
    Decoding,
    FloatArray,
    Key,
    Scheme,
    StragglerModel,
    Task,
)

DIMENSION = 3
PRECISION = 1e-12


def make(name: str, workers: int, jobs: int, *, seed: int = 0, **params: int | str) -> Scheme:
    """A scheme by name; parameters by long name."""
    return build_scheme(name, params, Context(workers, jobs, seed=seed))


def mask(workers: int, chosen: Iterable[int]) -> BoolArray:
    """(workers,) True at `chosen`."""
    late = np.zeros(workers, dtype=np.bool_)
    late[list(chosen)] = True
    return late


@cache
def gradients(chunks: int, job: int) -> FloatArray:
    """(chunks, dimension) made-up gradients of a job."""
    return np.random.Generator(np.random.PCG64(job)).standard_normal((chunks, DIMENSION))


class Play:
    """One run: remembers what every key stands for, so that decodes can be checked numerically."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.tasks: dict[Key, Task] = {}
        self.invoked: list[list[int]] = []
        """by round"""
        self.decoded: dict[int, Decoding] = {}

    @property
    def t(self) -> int:
        """The open round."""
        return len(self.invoked) - 1

    def start(self) -> list[int]:
        """Dispatches the next round; returns who is invoked."""
        t = len(self.invoked)
        assignment = self.scheme.assign(t)
        if not any(map(any, assignment.values())):
            assignment = {}  # a round without tasks
        for worker, slots in assignment.items():
            assert any(task is not None for task in slots), "idle workers must not be in an assignment"
            self.tasks |= {Key(t, worker, slot): task for slot, task in enumerate(slots) if task is not None}
        self.invoked.append(sorted(assignment))
        return self.invoked[t]

    def keys(self, t: int, worker: int) -> list[Key]:
        """The results that `worker` owes for round t."""
        return [key for key in self.tasks if key[:2] == (t, worker)]

    def answer(self, workers: Iterable[int], t: int | None = None) -> None:
        """These workers answer the open round (or a former one), in this order."""
        t = self.t if t is None else t
        for worker in workers:
            for key in self.keys(t, worker):
                self.scheme.heard(key)

    def end(self) -> tuple[int, ...]:
        """Closes the open round and decodes what is due."""
        due = self.scheme.end_round(self.t)
        for job in due:
            assert self.scheme.decodable(job), f"job {job} is due and does not decode"
            self.decoded[job] = self.scheme.decode(job)
            self.check(job, self.decoded[job])
        return due

    def round(self, late: Collection[int] = (), model: StragglerModel | None = None) -> tuple[int, ...]:
        """A whole round in which exactly `late` straggle; it must be free to end then."""
        invoked = self.start()
        self.answer(worker for worker in invoked if worker not in late)
        assert self.scheme.may_start(self.t + 1), f"round {self.t} may not end although {late} is tolerated"
        if model is not None:
            model.commit(mask(self.scheme.workers, late))
        return self.end()

    def combined_row(self, decoding: Decoding) -> FloatArray:
        """(chunks,) weights x rows: what the decode multiplies each chunk's gradient with."""
        return combined_row(self.scheme.chunk_sizes, self.tasks, decoding)

    def check(self, job: int, decoding: Decoding) -> None:
        """See `check_decoding`."""
        check_decoding(self.scheme.chunk_sizes, self.tasks, job, decoding)


@cache
def result(task: Task, chunks: int) -> FloatArray:
    """(dimension,) what a worker would send: its linear combination of the job's chunk gradients."""
    return np.asarray(task.coefficients) @ gradients(chunks, task.job)[list(task.chunks)]


def combined_row(chunk_sizes: FloatArray, tasks: Mapping[Key, Task], decoding: Decoding) -> FloatArray:
    """(chunks,) weights x rows: what the decode multiplies each chunk's gradient with."""
    row = [0.0] * len(chunk_sizes)
    for key, weight in decoding.weights.items():
        task = tasks[key]
        for chunk, coefficient in zip(task.chunks, task.coefficients, strict=True):
            row[chunk] += weight * coefficient
    return np.array(row)


def check_decoding(chunk_sizes: FloatArray, tasks: Mapping[Key, Task], job: int, decoding: Decoding) -> None:
    """weights x rows = 1, and weights x results = the job's gradient, to 1e-12 of what rounding may do."""
    assert all(tasks[key].job == job for key in decoding.weights)
    tolerance = PRECISION * max(1.0, decoding.amplification)
    error = np.abs(combined_row(chunk_sizes, tasks, decoding) - 1.0).max()
    assert error <= tolerance, f"weights x rows misses 1 by {error}"
    assert decoding.residual <= max(tolerance, 1e-9)
    chunks = len(chunk_sizes)
    total = sum(weight * result(tasks[key], chunks) for key, weight in decoding.weights.items())
    gradient = gradients(chunks, job).sum(axis=0)
    assert np.abs(total - gradient).max() <= tolerance * chunks


def loads(scheme: Scheme, t: int) -> list[float]:
    """Assigns round t: the fraction of a batch that each invoked worker processes."""
    sizes = scheme.chunk_sizes
    return [sum(task.load(sizes) for task in slots if task is not None) for slots in scheme.assign(t).values()]
