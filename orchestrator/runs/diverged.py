"""A model that has diverged: which one it is, and the weights of the others, which are not lost with it.

Knows no backend. Read next: `train.py`, which calls it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from gradmux.orchestrator.disk import make_private, write_whole
from gradmux.orchestrator.errors import Diverged, TaskFailed
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.training.checkpoint import save_weights
from gradmux.orchestrator.training.trainer import TorchTrainer

NOT_FINITE = re.compile(r"NonFiniteResult: job (\d+)")
"""what a worker says of a loss or gradient that is NaN or infinite"""


@dataclass(frozen=True, slots=True)
class Diverging:
    """Tells of the models of one life of a run."""

    prepared: Prepared
    trainer: TorchTrainer
    paths: RunPaths

    def found(self, failure: TaskFailed, hint: str) -> Diverged | None:
        """The model whose result is not finite, if that is why the task failed; `hint` is added to the reason."""
        match = NOT_FINITE.search(failure.reason)
        if match is None:
            return None
        job, plan = int(match[1]), self.prepared.plan
        model = self.prepared.models[plan.model(job)]
        what = f"{failure.reason.strip().splitlines()[0]} ({failure.attempts} attempts; {hint})"
        return self.told(Diverged(model.name, plan.step(job), what, model.optimizer_args.get("lr")))

    def told(self, error: Diverged) -> Diverged:
        """Saves the weights of all other models whose weights are finite, and says so. Raises: DiskError."""
        kept = [
            (index, plan.name)
            for index, plan in enumerate(self.prepared.models)
            if plan.name != error.model and _finite(self.trainer, index)
        ]
        if not kept:
            return error
        make_private(self.paths.weights("").parent)
        for index, name in kept:
            write_whole(self.paths.weights(name), [save_weights(self.trainer.module(index))])
        steps = ", ".join(f"{name} after {self.trainer.steps(index)} steps" for index, name in kept)
        where = f"; weights of the others are in {self.paths.weights('').parent} ({steps})"
        return Diverged(error.model, error.step, error.what, error.lr, where)


def _finite(trainer: TorchTrainer, model: int) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in trainer.module(model).parameters())
