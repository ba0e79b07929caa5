"""The torch side of the loop: models, their snapshots for workers, and the optimizer steps that decoded sums give.

Implements `ports.Trainer`. Weights change only in `step`; what `publish` has made of them never does. Knows neither
schemes nor fleets, and draws no random numbers once the models are built. Shapes: p parameters, k sums.
Read `gradients.py` for the decoding, `models.py` for how models are built, `checkpoint.py` for what resume needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.contract import State, Weights
from gradmux.lambda_worker.gradient import judge
from gradmux.lambda_worker.metrics import metric_sums, metrics_in
from gradmux.lambda_worker.models import Model, encode_spec
from gradmux.lambda_worker.norms import training_norms
from gradmux.lambda_worker.step import StepError
from gradmux.lambda_worker.structure import forward
from gradmux.orchestrator.errors import ConfigError, Diverged, GradmuxError
from gradmux.orchestrator.jobs import Plan
from gradmux.orchestrator.ports import ModelState, StepResult, Store
from gradmux.orchestrator.store import Keys, put_once
from gradmux.orchestrator.training.checkpoint import load_state, save_state
from gradmux.orchestrator.training.dataset import Array, Dataset
from gradmux.orchestrator.training.estimates import of_batch
from gradmux.orchestrator.training.gradients import Term, combine
from gradmux.orchestrator.training.models import (
    ModelPlan,
    Trained,
    make_spec,
    make_stepped_spec,
    prepare,
    seeded,
    why_not_stepped,
)
from gradmux.orchestrator.training.stretches import STATE_BYTES, StretchedModels, StretchResult, means
from gradmux.orchestrator.training.trial.kinds import PASS_ROWS
from gradmux.orchestrator.training.trial.mixing import mixing_now
from gradmux.orchestrator.training.trial.outcome import FEW
from gradmux.orchestrator.training.trial.playing import RowsOf
from gradmux.orchestrator.training.trying import rehearse, try_evaluation, try_training

INLINE_BYTES = 48 * 1024
"""Snapshots up to this size travel in every request; larger ones are read from the store, once per sandbox."""
EVENT_INLINE_BYTES = 8 * 1024
"""The same in events, of which AWS takes a sixth of the size."""
RETIRED_KEPT = 64
"""Snapshots that are not needed any more are deleted so many at a time: stragglers may still look for the last."""
EVALUATION_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a model does on rows that it was not trained on."""

    loss: float
    """mean"""
    accuracy: float | None
    """None when the model does not classify"""
    rows: int
    metrics: Mapping[str, float] = field(default_factory=dict)


class TorchTrainer:
    """Models side by side; `job` is counted as in the plan."""

    def __init__(
        self,
        plans: Sequence[ModelPlan],
        jobs: Plan,
        *,
        store: Store,
        keys: Keys,
        epoch: int = 0,
        inline_bytes: int = INLINE_BYTES,
        batch_rows: int | None = None,
        stepped: Sequence[bool] = (),
        state_bytes: int = STATE_BYTES,
    ) -> None:
        """`stepped`: is each model stepped by workers, in stretches? Empty: none is. States of up to `state_bytes`
        travel in requests. `batch_rows`: what an estimated gradient is divided by; None: by the rows that were decoded.

        `epoch` is the run's life.

        A model's name is mixed into its seed, so that equal plans begin with different weights, and adding a model to a
        job changes no other.
        Raises: ConfigError for a model that cannot be built.
        """
        assert len(plans) == jobs.models
        self._trained = [prepare(seeded(plan)) for plan in plans]
        self._jobs, self._store, self._keys, self._epoch = jobs, store, keys, epoch
        self._inline_bytes, self._batch_rows = inline_bytes, batch_rows
        self._snapshots: dict[int, Weights] = {}
        self._retired: list[str] = []
        self._stepped = tuple(stepped) or (False,) * len(plans)
        self._stretched = StretchedModels(self._trained, store, keys, epoch, state_bytes)

    def check(self, dataset: Dataset, evaluation: Dataset | None = None) -> None:
        """Tries a few rows on every model, for nothing: to train on, and to judge by.

        Raises: ConfigError that says what the model or loss said. A model that has not made a step yet must also give a
        finite loss.
        """
        for trained in self._trained:
            try_training(trained, dataset)
            if evaluation is not None:
                try_evaluation(trained, evaluation)

    def interacting(self, dataset: Dataset) -> tuple[ModelPlan, str] | None:
        """A model whose passes are free although its rows interact at the weights as they are now, and where they do.

        None when there is none. What the model raises is no concern of this.
        """
        for index, trained in enumerate(self._trained):
            if trained.plan.pass_rows is None:
                self._stretched.home(index)
                rows, sizes = RowsOf(dataset, trained.model.dtype), (FEW, PASS_ROWS)
                with suppress(Exception):  # the user's own model and loss
                    found = mixing_now(trained.model, rows, sizes, seed=trained.steps)
                    if found is not None:
                        return trained.plan, found.where
        return None

    def require_steady_counts(self, scheme: str) -> None:
        """For a scheme that reuses gradients, after `check`.

        Raises: ConfigError for a loss whose count may differ between two steps on the same rows.
        """
        for trained in self._trained:
            if not trained.model.loss.counts_by_target:
                raise ConfigError(
                    f"{scheme} reuses gradients, so every step must divide by the same count, but the loss of model "
                    f"{trained.plan.name!r} returns (sum, count): return one value a row, or use another scheme"
                )

    def rehearse(self, steps: int) -> None:
        """Plays so many steps of optimizer and scheduler without a gradient that means anything: for trials alone, as
        the models cannot be trained afterwards. Schedulers that are alike are played once. Raises: ConfigError.
        """
        played: list[object] = []
        for trained in self._trained:
            scheduler = trained.plan.scheduler, dict(trained.plan.scheduler_args)
            rehearse(trained, 0 if scheduler in played else steps)
            played.append(scheduler)

    # --- what workers are given ----------------------------------------------------------------------------------

    def put_specs(self) -> list[str]:
        """Makes every model's spec available to workers; their keys, by model. Raises ConfigError."""
        contents = [
            encode_spec(make_stepped_spec(trained) if stepped else make_spec(trained.plan))
            for trained, stepped in zip(self._trained, self._stepped, strict=True)
        ]
        return [put_once(self._store, Keys.model_spec(content), content) for content in contents]

    @property
    def seeds(self) -> list[int]:
        """Of the models' random numbers, by model; a pass mixes in step and pass."""
        return [trained.plan.seed for trained in self._trained]

    def begin(self, jobs: Plan) -> None:
        """From now on jobs are counted as in `jobs`; none of those before may be in flight."""
        for job in list(self._snapshots):
            self.retire(job)
        self._jobs = jobs

    def publish(self, job: int) -> None:
        """Makes the snapshot that `job` starts from available to workers: parameters, then float buffers.

        Nothing is done when that has been done: a snapshot never changes.
        """
        if job in self._snapshots or self._stretched.holds(job):
            return
        model, step = self._place(job)
        if self._stepped[model]:
            self._stretched.publish(job, model)
            return
        raw = flat.to_view(flat.snapshot(self._trained[model].module))  # the one copy that is made of a large model
        if len(raw) <= self._inline_bytes:
            self._snapshots[job] = Weights.of(bytes(raw))
            return
        key = self._keys.weights(self._epoch, model, step, raw)
        self._store.put(key, raw)
        self._snapshots[job] = Weights(key=key)

    def restore(self, job: int) -> None:
        """Puts the snapshot of a published job into the store again, if it got lost there and can still be made."""
        if self._stretched.holds(job):
            return
        trained, key = self._trained[self._jobs.model(job)], self._snapshots[job].key
        if key is not None and trained.steps == self._jobs.step(job) and not self._store.exists(key):
            self._store.put(key, flat.to_view(flat.snapshot(trained.module)))

    def weights(self, job: int) -> Weights:
        """How requests refer to the snapshot of a published job."""
        return self._snapshots[job]

    def state_of(self, job: int) -> State:
        """How the request of one more copy refers to the state that a stretch starts from."""
        return self._stretched.of(job)

    def retire(self, job: int) -> None:
        """No worker will need the snapshot or state of `job` any more."""
        weights = self._snapshots.pop(job, None)
        key = self._stretched.retire(job) if weights is None else weights.key
        if key is not None:
            self._retired.append(key)
        if len(self._retired) >= RETIRED_KEPT:
            self.clean()

    def clean(self) -> None:
        """Deletes the snapshots that were retired."""
        self._store.delete(self._retired)
        self._retired = []

    # --- what decoded sums do ------------------------------------------------------------------------------------

    def step(self, job: int, results: Sequence[Term | tuple[StretchResult, float]]) -> StepResult:
        """Applies the gradient of `job`: sum of weight * result, divided by the batch's count (`estimates.py`).

        After a stretch it takes over the state that a worker has sent.

        Raises: Diverged, the model being as before, when loss or gradient are not finite or the count is 0;
        GradmuxError when the optimizer or scheduler raises.
        """
        model, step = self._place(job)
        trained = self._trained[model]
        terms: list[Term] = []
        for result, weight in results:
            if isinstance(result, StretchResult):
                return self._stretched.take(job, model, result, self._jobs.job(job).steps)
            terms.append((result, weight))
        total = of_batch(combine(terms), self._batch_rows)
        try:
            stepped = trained.stepper.step(torch.from_numpy(total.gradient), torch.from_numpy(np.array(total.sums)))
        except StepError as error:
            advice = "change its arguments, then submit again"
            raise GradmuxError(f"model {trained.plan.name!r}, step {step}: {error}; {advice}") from error
        if stepped.diverged:
            raise Diverged(trained.plan.name, step, stepped.diverged, trained.plan.optimizer_args.get("lr"))
        taken = trained.model.set_buffers(torch.from_numpy(np.array(total.buffers)))
        trained.steps += 1
        return StepResult(
            loss=stepped.loss,
            count=round(stepped.rows),
            correct=round(stepped.correct),
            gradient_norm=stepped.norm,
            metrics=means(stepped.metrics),
            buffers_stayed=bool(trained.plan.buffers) and not taken,
        )

    def _place(self, job: int) -> tuple[int, int]:
        """(model, step) of a job, which must be the next one of its model."""
        model, step = self._jobs.model(job), self._jobs.step(job)
        done = self._trained[model].steps
        assert step == done, f"job {job} is step {step} of model {model}, which has done {done}"
        return model, step

    # --- the models ----------------------------------------------------------------------------------------------

    def model(self, model: int) -> Model:
        """A model as workers have it; its weights change with every step."""
        return self._trained[model].model

    def module(self, model: int) -> nn.Module:
        """The module itself, in training mode; its weights change with every step. Raises: GradmuxError."""
        return self._home(model).module

    def average(self, model: int) -> nn.Module:
        """A module of its own with the moving average of the weights."""
        trained = self._home(model)
        module = prepare(trained.plan).module
        trained.stepper.average_into(module)
        return module

    def evaluate(self, model: int, dataset: Dataset) -> Evaluation:
        """Loss and accuracy of a model, in evaluation mode, on all rows."""
        return self.judge(model, self.module(model), dataset)

    @torch.no_grad()
    def judge(self, model: int, module: nn.Module, dataset: Dataset) -> Evaluation:
        """The same of another module of this model."""
        trained = self._trained[model]
        module.eval()
        try:
            starts = range(0, dataset.rows, EVALUATION_ROWS)
            parts = [self._judge(trained.model, module, dataset, lo) for lo in starts]
        finally:
            training_norms(module, trained.plan.norms)
        loss, count, correct, judged = (sum(column) for column in zip(*(part for part, _ in parts), strict=True))
        mean = loss / count if count else math.nan
        metrics = metrics_in(trained.model.metrics, sum((sums for _, sums in parts[1:]), parts[0][1]))
        return Evaluation(mean, correct / judged if judged else None, dataset.rows, means(metrics))

    def _judge(
        self, model: Model, module: nn.Module, dataset: Dataset, lo: int
    ) -> tuple[tuple[float, float, float, float], torch.Tensor]:
        """(loss sum, its count, correct, judged) of EVALUATION_ROWS rows from `lo` on; and the sums of metrics."""
        rows = dataset.batch(slice(lo, min(lo + EVALUATION_ROWS, dataset.rows)), model.dtype)
        output = forward(module, rows.inputs)
        correct, judged = judge(output, rows.target)
        loss = model.loss.summed(output, rows.target)
        figures = float(loss.total), loss.count, float(correct.sum()), float(judged.sum())
        return figures, metric_sums(model.metrics, output, rows.target)

    def steps(self, model: int) -> int:
        """Steps that a model has done."""
        return self._trained[model].steps

    def size(self, model: int) -> int:
        """p, how many parameters a model has."""
        return sum(parameter.numel() for parameter in self._trained[model].model.parameters)

    def parameters(self, model: int) -> Array:
        """(p,) a copy of all parameters of a model as they are now, flat, in its own dtype."""
        return flat.flatten(self._home(model).model.parameters).numpy()

    def state(self, model: int) -> ModelState:
        """All that a later life of the run needs to go on with this model, bit for bit."""
        return save_state(self._home(model))

    def load_state(self, model: int, state: ModelState) -> None:
        """Goes on from there. Raises ConfigError when the state is of another model or optimizer."""
        load_state(self._trained[model], state)
        self._stretched.forget(model)

    def _home(self, model: int) -> Trained:
        """The model as it is now: what workers have made of it is fetched."""
        self._stretched.home(model)
        return self._trained[model]

    def untaught(self, model: int) -> str:
        """Why workers cannot make the steps of this model; empty when they can."""
        return why_not_stepped(self._trained[model])
