"""Which round may be dispatched next: in order when its predecessor has closed, or as models become ready.

Knows job arithmetic alone; capacity and closing are `rounds.py`'s business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Protocol

from gradmux.orchestrator.jobs import JobPlan, OpenPlan, Plan
from gradmux.orchestrator.schemes.checked import Checked


class Readiness(Protocol):
    """Hands out each round once."""

    def take(self, stepped: Set[int], open_rounds: bool) -> int | None:
        """The round to dispatch now; None: none may start yet. `stepped`: jobs whose gradient was applied."""
        ...

    def done(self, stepped: Set[int]) -> bool:
        """Has every round been handed out?"""
        ...

    def shorten(self) -> Plan:
        """Hands out no further step of any model than one that was handed out already; the plan from now on."""
        ...


class InOrder:
    """Round t + 1 follows when round t has closed and job t + 1 has its weights."""

    def __init__(self, plan: JobPlan, rounds: int) -> None:
        self._plan, self._rounds, self._next = plan, rounds, 0

    def take(self, stepped: Set[int], open_rounds: bool) -> int | None:
        t = self._next
        if open_rounds or t >= self._rounds:
            return None
        before = self._plan.predecessor(t) if t < self._plan.jobs else None
        if before is not None and before not in stepped:
            return None
        self._next += 1
        return t

    def done(self, stepped: Set[int]) -> bool:
        return self._next >= self._rounds

    def shorten(self) -> JobPlan:
        """For schemes without delay, whose rounds are jobs."""
        self._plan = replace(self._plan, steps=self._plan.step(max(self._next - 1, 0)) + 1)
        self._rounds = min(self._rounds, self._plan.jobs)
        return self._plan


class AsReady:
    """Rounds overlap: round t is job t, dispatched when its weights are ready, the model that lags most first."""

    def __init__(self, plan: JobPlan, already: Set[int]) -> None:
        self._plan, self._last = plan, max(already, default=0)
        self._queues: list[deque[int]] = [deque() for _ in range(plan.models)]
        for job in range(plan.jobs):
            if job not in already:
                self._queues[plan.model(job)].append(job)

    def take(self, stepped: Set[int], open_rounds: bool) -> int | None:
        ready = [queue[0] for queue in self._queues if queue and self._has_weights(queue[0], stepped)]
        if not ready:
            return None
        job = min(ready)
        self._last = max(self._last, job)
        self._queues[self._plan.model(job)].popleft()
        return job

    def done(self, stepped: Set[int]) -> bool:
        return not any(self._queues)

    def shorten(self) -> JobPlan:
        """Models that lag behind still get as far as the one that leads."""
        self._plan = replace(self._plan, steps=self._plan.step(self._last) + 1)
        self._queues = [deque(job for job in queue if job < self._plan.jobs) for queue in self._queues]
        return self._plan

    def _has_weights(self, job: int, stepped: Set[int]) -> bool:
        before = self._plan.predecessor(job)
        return before is None or before in stepped


class AsChosen:
    """The same over an open plan: round t is the t-th job that is dispatched, and begins then."""

    def __init__(self, plan: OpenPlan, stretch: Callable[[int, int], int]) -> None:
        """`stretch`: how many steps the job has that begins now, of (model, steps that it may have at most)."""
        self._plan, self._stretch = plan, stretch

    def take(self, stepped: Set[int], open_rounds: bool) -> int | None:
        ready = self._plan.ready(stepped)
        if not ready:
            return None
        return self._plan.begin(ready[0], self._stretch(ready[0], self._plan.room(ready[0])))

    def done(self, stepped: Set[int]) -> bool:
        return not any(self._plan.left(model) for model in range(self._plan.models))

    def shorten(self) -> OpenPlan:
        self._plan.shorten()
        return self._plan


def readiness_of(plan: Plan, scheme: Checked, already: Set[int]) -> Readiness:
    """How the rounds of this scheme follow each other. `already`: as for `Rounds`."""
    if isinstance(plan, OpenPlan):
        assert scheme.overlapping, "only rounds that do not wait for each other can be jobs in any order"
        assert not already, "an open plan begins with what is not done"
        return AsChosen(plan, scheme.stretch)
    assert isinstance(plan, JobPlan)
    return AsReady(plan, already) if scheme.overlapping else InOrder(plan, scheme.rounds)
