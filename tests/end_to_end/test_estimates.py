"""Approximate schemes over the real stack: each step is ordinary training on the rows that came in time, as weighted.

Which answers those were is read from the run's record and asked of a fresh scheme; the steps are then made here, by
plain torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gradmux.lambda_worker import flat
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.record import weights_crc
from gradmux.orchestrator.schemes.scheme import Decoding, Key, Task
from gradmux.orchestrator.training.models import Trained, prepare, seeded
from gradmux.orchestrator.training.order import RowIds, chunk_bounds
from tests.end_to_end.stage import Played, Stage
from tests.end_to_end.test_exactness import PLANS, job, play_in_trouble

Shares = list[tuple[float, RowIds]]
"""rows of a batch, and what each of their losses counts"""


@pytest.mark.parametrize(
    ("scheme", "params"),
    [("fastest-k", {"k": 5}), ("agc", {"s": 1, "r": 4}), ("agc", {"s": 2, "r": 3, "unbiased": "true"})],
    ids=str,
)
def test_each_step_is_ordinary_training_on_the_rows_that_came(
    stage: Stage, scheme: str, params: Mapping[str, int | str]
) -> None:
    played = play_in_trouble(stage, job(scheme, params, plans=[PLANS[0], PLANS[1], PLANS[3]]))
    models = [prepare(seeded(plan)) for plan in played.job.plans]
    for told, decoding, shares in zip(played.decoded, *decodes(played), strict=True):
        assert weights_crc(decoding) == told.weights_crc
        recorded = (told.residual, told.amplification, told.missing)
        assert recorded == pytest.approx((decoding.residual, decoding.amplification, decoding.missing), rel=1e-12)
        loss = step(models[told.model], played, shares)
        assert told.loss == pytest.approx(loss, rel=1e-5)
    assert any(item.missing > 0 for item in played.decoded), "some of it was estimated"
    for index, trained in enumerate(models):
        wanted, got = (np.asarray(flat.snapshot(each)) for each in (trained.module, played.trainer.module(index)))
        assert np.linalg.norm(got - wanted) <= 1e-5 * np.linalg.norm(wanted)


def decodes(played: Played) -> tuple[list[Decoding], list[Shares]]:
    """By job: how it was decoded, and from which rows."""
    made, scheme, decodings, shares = played.job, played.job.new_scheme(), [], []
    bounds = chunk_bounds(scheme.chunk_sizes, made.batch_size)
    for t in range(made.plan.jobs):
        tasks = scheme.assign(t)
        answers = [item for item in played.heard if item.round == t and item.outcome == Outcome.OK]
        while not scheme.decodable(t):
            scheme.heard(Key(t, answers.pop(0).worker, 0))
        decodings.append(scheme.decode(t))
        rows = made.order.chunks(made.plan.step(t), bounds)
        shares.append([(weight, rows[chunk_of(tasks[key.worker][0])]) for key, weight in decodings[t].weights.items()])
        scheme.end_round(t)
    return decodings, shares


def chunk_of(task: Task | None) -> int:
    assert task is not None
    (chunk,) = task.chunks
    return chunk


def step(trained: Trained, played: Played, shares: Shares) -> float:
    """One step on these rows; the mean loss before it."""
    dataset = played.job.dataset
    losses = [
        weight
        * cross_entropy(
            trained.module(torch.from_numpy(dataset.x[rows])), torch.from_numpy(dataset.y[rows]), reduction="sum"
        )
        for weight, rows in shares
    ]
    mean = torch.stack(losses).sum() / sum(weight * len(rows) for weight, rows in shares)
    trained.stepper.optimizer.zero_grad()
    mean.backward()  # type: ignore[no-untyped-call]
    trained.stepper.optimizer.step()
    return mean.item()
