"""Ordinary training in this one process, on the same batches: what a distributed run must agree with.

Written apart from `trainer.py` and the worker's `gradient.py`, so that an error of theirs shows. Without dropout the
whole batch goes through the model at once. Dropout draws per chunk, so a comparison needs the same chunks: give the
scheme's `chunk_sizes`, and the same masks are drawn. Batch normalisation follows the workers' rule (running statistics
normalise, the batch updates them): see `lambda_worker/norms.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gradmux.lambda_worker.gradient import mixed
from gradmux.lambda_worker.norms import recording, update_running_statistics
from gradmux.lambda_worker.randomness import torch_random
from gradmux.lambda_worker.structure import forward
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.models import ModelPlan, Trained, prepare, seeded
from gradmux.orchestrator.training.order import BatchOrder, RowIds, chunk_bounds


def train_reference(
    plan: ModelPlan,
    dataset: Dataset,
    order: BatchOrder,
    steps: int,
    *,
    chunk_sizes: NDArray[np.float64] | None = None,
    index: int = 0,
    seed: int = 0,
    clip_norm: float | None = None,
) -> tuple[nn.Module, list[float]]:
    """The trained module and the mean loss of every step.

    `index` is the model's place in its job (for initial weights and dropout), `seed` the job's (for dropout alone).
    """
    trained = prepare(seeded(plan, index))
    losses = []
    for step in range(steps):
        bounds = (0, order.batch_size) if chunk_sizes is None else chunk_bounds(chunk_sizes, order.batch_size)
        rows = dict(zip(bounds, order.chunks(step, bounds), strict=False))
        with recording(trained.model.norms) as statistics:
            seeds = mixed(mixed(seed, index), step)
            losses.append(_mean_gradient(trained, dataset, rows, seeds, order.epoch(step)))
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(trained.module.parameters(), clip_norm)
        trained.stepper.optimizer.step()
        if trained.stepper.scheduler is not None:
            trained.stepper.scheduler.step()
        update_running_statistics(trained.model.norms, statistics)
    return trained.module, losses


def _mean_gradient(trained: Trained, dataset: Dataset, chunks: Mapping[int, RowIds], seed: int, epoch: int) -> float:
    """Sets every .grad to that of the mean loss over all rows, which is returned. `chunks`: first pass -> rows."""
    trained.stepper.optimizer.zero_grad()
    count, total = 0.0, 0.0
    for first, rows in chunks.items():
        if len(rows) == 0:
            continue
        with torch_random(mixed(seed, first)):
            batch = dataset.batch(rows, trained.model.dtype, epoch)
            loss = trained.model.loss.summed(forward(trained.module, batch.inputs), batch.target)
        loss.total.backward()  # type: ignore[no-untyped-call]
        total, count = total + loss.total.item(), count + loss.count
    for parameter in trained.model.parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad.to_dense().div_(count)
    return total / count
