"""Measures delays: real invocations of the job's own work at several loads, through any fleet.

Loads take turns round by round, so that a drift of the platform meets them all alike. What is told apart: the worker's
own time, what the client and the way there and back add to it, cold starts, and failures, which are never taken for
fast answers. Knows no AWS and no models. Read next: `delays/load_fit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradmux.orchestrator.delays.load_fit import LoadFit, fit_load
from gradmux.orchestrator.delays.profile import BoolArray, DelayProfile, FloatArray
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Arrival, Fleet, Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import Task


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to measure."""

    workers: int
    """n, invocations of one round"""
    loads: tuple[float, ...]
    """fractions of one batch, ascending"""
    rounds: int
    """for each load"""
    patience_s: float
    """how long a round is waited for; what has not come by then counts as failed"""

    def __post_init__(self) -> None:
        if not self.loads or any(not 0 < load <= 1 for load in self.loads):
            raise ConfigError(f"loads {_listed(self.loads)}: each is a fraction of one batch, above 0 and at most 1")
        if list(self.loads) != sorted(set(self.loads)):
            raise ConfigError(f"loads {_listed(self.loads)}: give each once, smallest first")
        if self.rounds < 1 or self.workers < 1:
            raise ConfigError("a probe needs at least 1 round and 1 worker")

    @property
    def chunk_sizes(self) -> FloatArray:
        """(loads + 1,) cuts a batch so that the first i + 1 chunks together are loads[i]."""
        return np.diff([0.0, *self.loads, 1.0])

    def task(self, which: int) -> Task:
        """Load number `which`, of job 0."""
        return Task(0, tuple(range(which + 1)), (1.0,) * (which + 1))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured at one load; arrays are (rounds, workers)."""

    load: float
    delay_s: FloatArray
    """from invocation to answer; inf where there was none"""
    worker_s: FloatArray
    """of it, inside the worker"""
    cold: BoolArray
    billed_s: float

    @property
    def failed(self) -> BoolArray:
        return np.isinf(self.delay_s)

    @property
    def ordinary_s(self) -> float:
        """Median of what answered, cold starts aside where anything else did."""
        warm = ~self.failed & ~self.cold
        return float(np.median(self.delay_s[warm if warm.any() else ~self.failed]))

    def to_dict(self) -> dict[str, Any]:
        """What one load took; cold starts and failures are counted, and kept out of the figures in seconds."""
        warm = ~self.failed & ~self.cold
        answered = warm if warm.any() else ~self.failed
        delay_s, worker_s = self.delay_s[answered], self.worker_s[answered]
        median, ninety = (float(q) for q in np.quantile(delay_s, (0.5, 0.9)))
        return {
            "load": self.load,
            "median_s": median,
            "p90_s": ninety,
            "max_s": float(delay_s.max()),
            "worker_median_s": float(np.median(worker_s)),
            "way_median_s": float(np.median(delay_s - worker_s)),
            "cold": int(self.cold.sum()),
            "failed": int(self.failed.sum()),
            "billed_s": self.billed_s,
        }

    def profile(self, name: str) -> DelayProfile:
        """As a delay profile. Raises ConfigError when nothing answered."""
        return DelayProfile(self.delay_s, load=self.load, cold=self.cold, failed=self.failed, name=name)


@dataclass(frozen=True, slots=True)
class Probe:
    """All loads, and the line through them."""

    measured: tuple[Measured, ...]
    fit: LoadFit | None
    """None with a single load"""

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "base_s": None if self.fit is None else self.fit.base_s,
            "slope_s": None if self.fit is None else self.fit.slope_s,
            "loads": [one.to_dict() for one in self.measured],
        }

    def profile(self, name: str) -> DelayProfile:
        """All rounds as one profile at the smallest load; those of other loads are scaled to its ordinary answer.

        Scaled, not shifted: where answers vary more than the load makes of them, a shift would leave delays that no
        call can have, zero or less.
        """
        first = self.measured[0]
        scaled = [one.delay_s * (first.ordinary_s / one.ordinary_s) for one in self.measured]
        return DelayProfile(
            np.stack(scaled, axis=1).reshape(-1, scaled[0].shape[1]),
            load=first.load,
            slope_s=None if self.fit is None else max(self.fit.slope_s, 0.0),
            cold=np.stack([one.cold for one in self.measured], axis=1).reshape(-1, scaled[0].shape[1]),
            name=name,
        )


def probe(fleet: Fleet, plan: ProbePlan, on_round: Callable[[int], None] | None = None) -> Probe:
    """Plays the plan. The fleet must be able to serve job 0 in chunks of `plan.chunk_sizes`.

    Raises: ConfigError when no invocation of a load answered.
    """
    shape = (len(plan.loads), plan.rounds, plan.workers)
    delay_s, worker_s = np.full(shape, np.inf), np.zeros(shape)
    cold, billed_s = np.zeros(shape, dtype=np.bool_), np.zeros(len(plan.loads))
    for t in range(plan.rounds * len(plan.loads)):
        row, which = divmod(t, len(plan.loads))
        task = plan.task(which)
        calls = [Invocation(t, w, 1, (task,), plan.loads[which]) for w in range(plan.workers)]
        start_s, answers = _round(fleet, calls, plan.patience_s)
        for answer in answers:
            billed_s[which] += answer.billed_s
            if answer.outcome is Outcome.OK:
                place = (which, row, answer.worker)
                delay_s[place], worker_s[place] = answer.at_s - start_s, answer.worker_s
                cold[place] = answer.cold
        if on_round is not None:
            on_round(t + 1)
    measured = tuple(
        Measured(load, delay_s[i], worker_s[i], cold[i], float(billed_s[i])) for i, load in enumerate(plan.loads)
    )
    profiles = [_answered(one) for one in measured]
    return Probe(measured, fit_load(profiles) if len(profiles) > 1 else None)


def _round(fleet: Fleet, calls: Sequence[Invocation], patience_s: float) -> tuple[float, list[Arrival]]:
    """When it started, and what came of it in time. Answers of earlier rounds are passed over."""
    start_s = fleet.invoke(calls)
    answers: list[Arrival] = []
    while len(answers) < len(calls):
        arrival = fleet.next(start_s + patience_s)
        if arrival is None:
            break
        if arrival.round == calls[0].round:
            answers.append(arrival)
    return start_s, answers


def _answered(one: Measured) -> DelayProfile:
    if one.failed.all():
        raise ConfigError(f"no invocation at load {one.load:g} answered in time: nothing was measured")
    return one.profile("")


def _listed(loads: Sequence[float]) -> str:
    return ", ".join(f"{load:g}" for load in loads)
