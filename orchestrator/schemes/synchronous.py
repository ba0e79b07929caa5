"""What round-synchronous schemes share: job t starts in round t, is due in round t + T, and is forgotten after that.

A scheme adds who computes what (`assign`), what an answer means (`heard`) and which jobs can still be saved
(`_recoverable`).
`CodedJob` is one job under one codeword, `OneRoundScheme` the plain case T = 0. Read next: `gradient_coding.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import numpy as np

from gradmux.orchestrator.schemes.asks import Place
from gradmux.orchestrator.schemes.codes import Code, Codeword, Combination
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    BoolArray,
    Context,
    Decoding,
    FloatArray,
    Key,
    StragglerModel,
    Task,
)


class JobState(Protocol):
    """What has been heard for one job."""

    @property
    def complete(self) -> bool:
        """Can it be decoded? Counts only."""
        ...

    def useful(self) -> Iterable[Key]:
        """Results that its decode may use."""
        ...

    def combine(self, estimate: bool) -> Decoding:
        """The weights: exact, or least squares over what was heard."""
        ...


class PlacingJob(JobState, Protocol):
    """One that knows on arrival what a result counts for; its scheme says `weights_known`."""

    def place(self, key: Key) -> tuple[int, int] | None:
        """(index, count) of a result of weight 1 in the decode; None when no decode will use it."""
        ...


State = TypeVar("State", bound=JobState)


class SynchronousScheme(ABC, Generic[State]):
    """The bookkeeping of rounds and jobs. A job's state lives from its first round until the round after its last."""

    exact = True
    overlapping = False
    reuses_results = False
    weights_known = False
    """True when the jobs' states are `PlacingJob`s: results may then be added up as they arrive"""

    def __init__(self, name: str, context: Context, *, delay: int, chunk_sizes: FloatArray, binary: bool) -> None:
        self.name, self.delay, self.binary = name, delay, binary
        self.workers, self.jobs = context.workers, context.jobs
        self.rounds = context.jobs + delay
        self.chunk_sizes = chunk_sizes
        self._active: dict[int, State] = {}
        """job -> what was heard for it"""
        self._completed: set[int] = set()
        """forgotten jobs that were decodable"""
        self._decoded: set[int] = set()
        """active jobs whose decode was already asked for"""
        self._closed = 0
        """rounds closed so far"""

    @abstractmethod
    def assign(self, t: int) -> Assignment:
        """The tasks of round t, given what was heard until now."""

    @abstractmethod
    def heard(self, key: Key) -> None:
        """The result `key` has arrived."""

    @abstractmethod
    def wanted(self, t: int) -> tuple[int, ...]:
        """Workers of round t whose answer would still help, best first."""

    @abstractmethod
    def straggler_model(self, name: str) -> StragglerModel:
        """The declared model by name."""

    @abstractmethod
    def _recoverable(self, t: int) -> bool:
        """If round t began now and no worker straggled any more, would every job due from round t on decode in time?"""

    @property
    def adds(self) -> bool:
        """Are weights known on arrival, and results not needed again?"""
        return self.weights_known and self.binary and not self.reuses_results

    def place(self, key: Key) -> Place | None:
        """Where a result stands in the sum of its job, until that decodes."""
        job = self._serves(key)
        state = self._active.get(job)
        # Asked of every result, hence not by isinstance of a protocol, which takes longer than all the rest.
        place = getattr(state, "place", None)
        if job in self._decoded or place is None:
            return None
        found = place(key)
        return None if found is None else Place(job, *found)

    def _serves(self, key: Key) -> int:
        """The job that a result is of."""
        return key.round

    def decodable(self, job: int) -> bool:
        """Do the results heard until now suffice for `job`?"""
        state = self._active.get(job)
        return job in self._completed if state is None else state.complete

    def may_start(self, t: int) -> bool:
        """Are all jobs due by round t - 1 decodable, and all others recoverable? Rounds 0..t-1 have been assigned.

        What was due in a round that has closed is settled: it was decoded, estimated or given up, and holds nothing up.
        """
        due = range(max(0, self._closed - self.delay), min(self.jobs, t - self.delay))
        return all(self.decodable(job) for job in due) and self._recoverable(t)

    def end_round(self, t: int) -> tuple[int, ...]:
        """Round t closes: the job due now, if any. Jobs that were due earlier are forgotten."""
        due = t - self.delay
        self._closed = t + 1
        for job in [job for job in self._active if job < due]:
            if self._active.pop(job).complete:
                self._completed.add(job)
            self._decoded.discard(job)
        return (due,) if 0 <= due < self.jobs else ()

    def decode(self, job: int) -> Decoding:
        """The weights of a decodable job; what it does not use may be dropped from now on."""
        decoding = self._active[job].combine(estimate=False)
        self._decoded.add(job)
        return decoding

    def estimate(self, job: int) -> Decoding:
        """The least-squares decode of `job` from what was heard; what it does not use may be dropped from now on."""
        decoding = self._active[job].combine(estimate=True)
        self._decoded.add(job)
        return decoding

    def skipped(self, key: Key) -> None:
        """No task of such a scheme may be skipped."""
        raise AssertionError(f"{self.name} lets no worker skip its task, but {key} did")

    def needs_weights(self) -> frozenset[int]:
        """None: a decoded job is never referred to again."""
        return frozenset()

    def keeps(self) -> frozenset[Key]:
        """Results of jobs that were not decoded yet, as far as their decode may use them."""
        waiting = (state for job, state in self._active.items() if job not in self._decoded)
        return frozenset(key for state in waiting for key in state.useful())


class CodedJob:
    """One job under one codeword: which worker answered first in which round."""

    def __init__(self, job: int, word: Codeword) -> None:
        self.job, self.word = job, word
        self.reception = word.reception()
        self._round: dict[int, int] = {}

    @property
    def complete(self) -> bool:
        """Do the answers suffice?"""
        return self.reception.complete

    def task(self, worker: int) -> Task:
        """What `worker` computes for this job."""
        return Task(self.job, *self.word.row(worker))

    def add(self, key: Key) -> None:
        """Takes an answer; only the first of each worker counts, since they are equal."""
        if key.worker not in self._round:
            self._round[key.worker] = key.round
            self.reception.add(key.worker)

    def useful(self) -> list[Key]:
        """Results that the decode may use."""
        return [self._key(worker) for worker in self.reception.useful()]

    def place(self, key: Key) -> tuple[int, int] | None:
        """By the code."""
        return self.reception.place(key.worker) if self._round.get(key.worker) == key.round else None

    def combine(self, estimate: bool) -> Decoding:
        """The weights by key."""
        found: Combination = self.reception.estimate() if estimate else self.reception.decode()
        weights = {self._key(worker): weight for worker, weight in found.weights.items()}
        return Decoding(weights, found.residual, found.amplification, found.missing)

    def _key(self, worker: int) -> Key:
        return Key(self._round[worker], worker, 0)


class OneRoundScheme(SynchronousScheme[CodedJob]):
    """T = 0: round t is job t under its own codeword, and lasts until that decodes."""

    weights_known = True

    def __init__(self, name: str, code: Code, context: Context) -> None:
        sizes = np.full(code.chunks, 1.0 / code.chunks)
        super().__init__(name, context, delay=0, chunk_sizes=sizes, binary=code.binary)
        self.code = code

    def assign(self, t: int) -> Assignment:
        """Every worker sends its row of job t's codeword."""
        job = self._active[t] = self._new_job(t)
        return {worker: (job.task(worker),) for worker in range(self.workers)}

    def _new_job(self, job: int) -> CodedJob:
        """What collects the answers of `job`."""
        return CodedJob(job, self.code.draw(job))

    def heard(self, key: Key) -> None:
        """Counts for the job of its round, unless that is long over."""
        job = self._active.get(key.round)
        if job is not None:
            job.add(key)

    def wanted(self, t: int) -> tuple[int, ...]:
        """Whose answer would complete job t."""
        return tuple(self._active[t].reception.helpful())

    def decodes_from(self, answered: BoolArray) -> bool:
        """Would the open round decode from exactly these workers?"""
        return self._active[self._closed].word.covers(answered)

    def _recoverable(self, t: int) -> bool:
        """No job outlives its round."""
        return True
