"""Where a life of a run begins: which jobs are done, in the counting of the whole run and in that of this life.

Pure arithmetic. Job a of the whole run is step a div M of model a mod M; a life counts from its first job that is not
done. Round-synchronous schemes apply jobs in order, so what is done is a prefix; under an overlapping one some models
may be ahead. Read next: `checkpoints.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradmux.orchestrator.jobs import JobPlan


@dataclass(frozen=True, slots=True)
class Start:
    """What a life has to do."""

    plan: JobPlan
    already: frozenset[int]
    """jobs of this life that are done: of models that were ahead"""

    @property
    def finished(self) -> bool:
        """Is nothing left to do?"""
        return len(self.already) == self.plan.jobs


def start_after(done: Sequence[int], steps: int) -> Start:
    """The start after `done` steps of each model, out of `steps`."""
    models = len(done)
    assert all(0 <= each <= steps for each in done), f"{done} of {steps} steps"
    first = min((count * models + model for model, count in enumerate(done) if count < steps), default=models * steps)
    applied = (step * models + model for model, count in enumerate(done) for step in range(count))
    already = frozenset(job - first for job in applied if job > first)
    return Start(JobPlan(models=models, steps=steps, first=first), already)
