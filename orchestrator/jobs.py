"""Which model and which of its steps a job is: what one decode gives.

    JobPlan    fixed from the start: job t is step t div M of model t mod M; what round-synchronous schemes rest on
    OpenPlan   jobs are numbered as they are dispatched: any model that is ready, any number of its steps in a row;
               models may end early, go on for longer, or join

Whichever it is, a job is fixed when it is dispatched, and the record has it. Pure arithmetic; knows neither schemes nor
tensors. Read next: `readiness.py`, `rounds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from gradmux.orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Job:
    """Steps [first, end) of one model, applied at once."""

    model: int
    """index in the run"""
    first: int
    """its first step, from 0 over the whole run"""
    steps: int = 1
    """K; above 1 a worker makes them in a row, and each result is the model after them"""

    @property
    def end(self) -> int:
        """The step that its model is at when the job has been applied."""
        return self.first + self.steps


class Plan(Protocol):
    """The jobs of one life of a run, numbered from 0."""

    @property
    def models(self) -> int:
        """M, models side by side."""
        ...

    @property
    def steps(self) -> int:
        """Steps of the model that gets furthest, counted over the whole run."""
        ...

    @property
    def jobs(self) -> int:
        """J: all of them in a fixed plan; in an open one at least so many, and all once nothing is left to begin."""
        ...

    @property
    def most_jobs(self) -> int:
        """How many jobs there may be in all: in an open plan as if each that is to begin had one step."""
        ...

    def job(self, number: int) -> Job:
        """What this job is. In an open plan it must have begun."""
        ...

    def model(self, number: int) -> int: ...
    def step(self, number: int) -> int: ...

    def predecessor(self, number: int) -> int | None:
        """The job of this life whose decode gives the weights that this one starts from; None: they are there."""
        ...


@dataclass(frozen=True, slots=True)
class JobPlan:
    """M models of `steps` steps each, interleaved: job t needs the weights that job t - M produced.

    A resumed run counts its jobs from 0 again; `first` says where in the whole run its job 0 stands.
    """

    models: int
    """M"""
    steps: int
    """per model, over the whole run"""
    first: int = 0
    """jobs of the whole run that were done before this life of it began"""
    members: tuple[int, ...] = ()
    """the M models that take turns, where others of the run have ended or were dropped; empty: models 0..M-1"""

    def __post_init__(self) -> None:
        assert not self.members or len(self.members) == self.models

    @property
    def jobs(self) -> int:
        """J, jobs that this life of the run has to do: M * steps - first."""
        return self.models * self.steps - self.first

    def job(self, number: int) -> Job:
        """One step of one model."""
        return Job(self.model(number), self.step(number))

    @property
    def most_jobs(self) -> int:
        """J."""
        return self.jobs

    def model(self, number: int) -> int:
        """Index of the model that the job trains."""
        turn = (number + self.first) % self.models
        return self.members[turn] if self.members else turn

    def step(self, number: int) -> int:
        """Which step of its model the job is, from 0."""
        return (number + self.first) // self.models

    def predecessor(self, number: int) -> int | None:
        """The job M before; None in the first turn."""
        return number - self.models if number >= self.models else None


class OpenPlan:
    """Jobs that are chosen one by one, as they are dispatched. A model has one job under way at most."""

    def __init__(self, done: Sequence[int], ends: Sequence[int], most: Sequence[int | None] = ()) -> None:
        """`done`: steps that each model has made; `ends`: where each stops. A model that has ended has both equal.

        `most`: steps that one job of each model may have, None: any number; empty: any number for all of them.
        """
        assert all(0 <= made <= end for made, end in zip(done, ends, strict=True)), f"{done} of {ends}"
        assert not most or len(most) == len(ends)
        self._most: list[int | None] = list(most) or [None] * len(ends)
        self._next, self._ends = list(done), list(ends)
        self._begun: list[Job] = []
        self._before: list[int | None] = []
        """of each job: its predecessor"""
        self._last: list[int | None] = [None] * len(self._ends)
        """of each model: its job that has begun last"""

    @property
    def models(self) -> int:
        """All that the run has or had."""
        return len(self._ends)

    @property
    def steps(self) -> int:
        return max(self._ends, default=0)

    @property
    def ends(self) -> tuple[int, ...]:
        """Where each model stops, as far as is known now."""
        return tuple(self._ends)

    @property
    def jobs(self) -> int:
        """Those that have begun, and one for each model with steps left."""
        return len(self._begun) + sum(self.left(model) > 0 for model in range(self.models))

    @property
    def most_jobs(self) -> int:
        return len(self._begun) + sum(self.left(model) for model in range(self.models))

    def job(self, number: int) -> Job:
        return self._begun[number]

    def model(self, number: int) -> int:
        return self._begun[number].model

    def step(self, number: int) -> int:
        return self._begun[number].first

    def predecessor(self, number: int) -> int | None:
        return self._before[number]

    def left(self, model: int) -> int:
        """Steps of a model that have not begun."""
        return self._ends[model] - self._next[model]

    def room(self, model: int) -> int:
        """Steps that the next job of a model may have at most."""
        left, most = self.left(model), self._most[model]
        return left if most is None else min(left, most)

    def ready(self, applied: Set[int]) -> list[int]:
        """Models whose next job may begin when these jobs have been applied: those that lag most first."""
        free = (m for m in range(self.models) if self.left(m) and (self._last[m] is None or self._last[m] in applied))
        return sorted(free, key=lambda model: (self._next[model], model))

    def begin(self, model: int, steps: int = 1) -> int:
        """Fixes the next job of a model, and numbers it. `steps` beyond what it may have are left out."""
        assert steps >= 1
        assert self.left(model) > 0, f"model {model} has made its {self._ends[model]} steps"
        job = Job(model, self._next[model], min(steps, self.room(model)))
        self._before.append(self._last[model])
        self._begun.append(job)
        self._next[model], self._last[model] = job.end, len(self._begun) - 1
        return len(self._begun) - 1

    def cut(self, number: int, steps: int) -> None:
        """The last job of its model came to fewer steps than it was to have: the next one begins where it stopped."""
        job = self._begun[number]
        assert self._last[job.model] == number, f"job {number} is not the last of model {job.model}"
        assert 0 <= steps <= job.steps, f"{steps} of {job.steps} steps"
        self._begun[number] = replace(job, steps=steps)
        self._next[job.model] = job.first + steps

    def end(self, model: int, step: int) -> int:
        """From now on the model stops after so many steps, or after its job that has begun; where that is.

        So a model that is pruned ends early, and frees its turns at once; one may also be given more steps.
        """
        self._ends[model] = max(step, self._next[model])
        return self._ends[model]

    def add(self, end: int, done: int = 0) -> int:
        """One more model joins, which has made `done` steps and stops after `end`; its index."""
        assert 0 <= done <= end
        self._next.append(done)
        self._ends.append(end)
        self._last.append(None)
        self._most.append(None)
        return self.models - 1

    def shorten(self) -> None:
        """No model goes further than any has begun to."""
        furthest = max(self._next, default=0)
        self._ends = [min(end, max(furthest, made)) for end, made in zip(self._ends, self._next, strict=True)]


def require_models(models: int, delay: int, scheme: str) -> None:
    """Refuses a scheme whose delay T does not fit M models: a job's weights would not be ready in time.

    Raises: ConfigError that names M, T and what would fit.
    """
    if models >= delay + 1:
        return
    fits = (
        f"any scheme with delay T <= {models - 1}" if models > 1 else "a scheme without delay (uncoded, gc, pipeline)"
    )
    raise ConfigError(
        f"{scheme} has delay T = {delay} and so needs at least T + 1 = {delay + 1} models side by side, but this job "
        f"has M = {models}: add {delay + 1 - models} model(s), or use smaller parameters or {fits}"
    )
