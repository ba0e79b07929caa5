"""Where a life of a run begins: which jobs are done, in the counting of the whole run and in that of this life.

Pure arithmetic. Job a of the whole run is step a div M of model a mod M; a life counts from its first job that is not
done. Round-synchronous schemes apply jobs in order, so what is done is a prefix; under an overlapping one some models
may be ahead. Read next: `checkpoints.py`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from gradmux.orchestrator.jobs import JobPlan, OpenPlan, Plan
from gradmux.orchestrator.schemes.scheme import SchemeInfo


@dataclass(frozen=True, slots=True)
class Start:
    """What a life has to do."""

    plan: Plan
    already: frozenset[int]
    """jobs of this life that are done: of models that were ahead"""

    @property
    def finished(self) -> bool:
        """Is nothing left to do?"""
        return len(self.already) == self.plan.jobs


def start_after(done: Sequence[int], steps: int, dropped: Set[int] = frozenset()) -> Start:
    """The start after `done` steps of each model, out of `steps`; models that are `dropped` make no more.

    `steps` may be more than the run had before. Models that have joined have `done` 0.
    """
    members = tuple(model for model in range(len(done)) if model not in dropped)
    counts, models = [done[model] for model in members], len(members)
    assert all(0 <= each <= steps for each in counts), f"{counts} of {steps} steps"
    first = min((count * models + turn for turn, count in enumerate(counts) if count < steps), default=models * steps)
    applied = (step * models + turn for turn, count in enumerate(counts) for step in range(count))
    already = frozenset(job - first for job in applied if job > first)
    return Start(JobPlan(models, steps, first, members if dropped else ()), already)


def open_after(done: Sequence[int], ends: Sequence[int], most: Sequence[int | None] = ()) -> OpenPlan:
    """The same where jobs are chosen as they are dispatched, and each model has an end of its own.

    A model that was dropped or has ended makes no more, wherever its end was. `most`: as for the plan.
    """
    return OpenPlan(done, [max(each) for each in zip(done, ends, strict=True)], most)


def start_for(info: SchemeInfo, done: Sequence[int], steps: int, most: Sequence[int | None] = ()) -> Start:
    """The start under a scheme: its jobs are chosen as they are dispatched if they may have several steps.

    `most`: steps that one job of each model may have then.
    """
    if not info.stretches:
        return start_after(done, steps)
    return Start(open_after(done, (steps,) * len(done), most), frozenset())
