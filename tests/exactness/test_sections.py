"""All that travels with a gradient comes back whole: buffers, statistics of batch norm, counts, and named metrics.

A small model with batch norm, buffers of several types that its forward changes, a loss whose count is no number of
rows, and metrics, under every scheme, summed by the client and in the store, in every type that gradients travel in:
equal to the plain loop. For estimates the test says by hand what holds. Read next: `tests/cli/test_sections.py`, over
HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from gradmux.orchestrator.auto import Choice
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.schemes.scheme import Key
from gradmux.orchestrator.training.order import chunk_bounds
from gradmux.orchestrator.training.reference import PlainModel
from scripts.exactness.here import play, prepared_of
from tests.exactness.keeping import AGREE, EXACT, TYPES, X, Y, assert_alike, assert_metrics, case, plain, under


def ways() -> Iterator[Any]:
    """Every scheme, summed here and in the store, in every type that its code may travel in."""
    for (scheme, params, workers), kind, summed in product(EXACT, TYPES, ("client", "cloud")):
        label = " ".join([scheme, *(f"{key}={value}" for key, value in params.items())])
        half = "code" in params
        if not (half and kind == "float16") and (summed == "client" or kind != "float64"):
            yield pytest.param(scheme, params, workers, kind, summed == "cloud", id=f"{label}-{kind}-{summed}")


@pytest.mark.parametrize(("scheme", "params", "workers", "kind", "cloud"), list(ways()))
def test_every_section_is_that_of_plain_training(
    scheme: str, params: Mapping[str, Any], workers: int, kind: str, cloud: bool
) -> None:
    played = play(under(kind, scheme, params, workers), cloud=cloud)
    expected, limit = plain(kind), AGREE[kind]
    for index, plan in enumerate(played.prepared.models):
        assert_alike(played.trainer.module(index), expected[plan.name], limit)
        told = [each for each in played.decoded if each.model == index]
        assert [each.loss for each in told] == pytest.approx(expected.losses[plan.name], rel=limit)
        assert {(each.count, each.buffers_stayed) for each in told} == {(64, False)}
        for each in told:
            assert_metrics(each, played.prepared.order.batch(each.step))


# --- estimates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", [False, True])
@pytest.mark.parametrize(("scheme", "params"), [("fastest-k", {"k": 3}), ("agc", {"s": 1, "r": 2})], ids=str)
def test_an_estimate_is_a_step_on_the_passes_that_came(scheme: str, params: Mapping[str, Any], cloud: bool) -> None:
    """Of four workers one is late in each round, another one each time. fastest-k: the mean over the rows that came.

    agc, 4 workers in 2 groups, the first 2 answers: with both groups plain training; with one the sum of its half of
    the batch over 1 - p = 5/6, divided by the whole batch's count: 0.6 of a step on that half. Buffers are those after
    the batch's first pass, or, where no answer had it, those before.
    """
    made = estimating(scheme, params)
    played, model = play(made, cloud=cloud), PlainModel(made.models[0])
    stayed, scales = [], []
    for step, shares in enumerate(answered(made, STEPS_OF_ESTIMATES)):
        numbers = sorted({number for share in shares for number in share})
        scale = 1.0 if scheme == "fastest-k" or len(numbers) == made.passes else 6 / 5 * len(numbers) / made.passes
        scales.append(scale)
        model._optimizer.param_groups[0]["lr"] = LEARNING_RATE * scale
        model.step([(number, *rows_of(made, step, number)) for number in numbers], step)
        stayed.append(0 not in numbers)
    for name, buffer in played.trainer.module(0).named_buffers():
        rtol, atol = (VARIANCES, 0.0) if name == "norm.running_var" else (1e-5, 1e-6)
        torch.testing.assert_close(buffer, model.module.get_buffer(name), rtol=rtol, atol=atol)
    for mine, other in zip(played.trainer.module(0).parameters(), model.module.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    assert {each.count for each in played.decoded} == {64}
    means = [each.metrics[0]["weighted"] * scale for each, scale in zip(played.decoded, scales, strict=True)]
    assert means == pytest.approx([each.loss for each in played.decoded], rel=1e-5), "of the rows that came"
    assert [each.buffers_stayed for each in played.decoded] == stayed
    assert set(stayed) == {False, True}, "both are among these steps"
    assert scheme == "fastest-k" or set(scales) == {1.0, 0.6}, "both are among these steps"


STEPS_OF_ESTIMATES, LEARNING_RATE = 12, 0.1
VARIANCES = 0.02
"""relative: an estimate's sums stand for 64 rows, whose variance is corrected by 64/63, whatever number came"""


def estimating(scheme: str, params: Mapping[str, Any]) -> Prepared:
    """One model without momentum, whose steps can be scaled."""
    made = prepared_of(replace(case(), optimizer={"name": "SGD", "lr": LEARNING_RATE}), STEPS_OF_ESTIMATES)
    return made.under(Choice(scheme, params, 4, "asked for"), made.plan)


def answered(made: Prepared, steps: int) -> list[list[range]]:
    """The passes of the answers that each step's estimate is made of: workers answer in order, but for the late one."""
    scheme, found = made.scheme(), []
    bounds = chunk_bounds(scheme.chunk_sizes, made.passes)
    for step in range(steps):
        slots = scheme.assign(step)
        first = [worker for worker in range(4) if worker != step % 4][: 3 if made.scheme_name == "fastest-k" else 2]
        tasks = [task for worker in first for task in slots[worker] if task is not None]
        found.append([range(bounds[chunk], bounds[chunk + 1]) for task in tasks for chunk in task.chunks])
        for worker in range(4):
            scheme.heard(Key(step, worker, 0))
        scheme.end_round(step)
    return found


def rows_of(made: Prepared, step: int, number: int) -> tuple[Any, Any]:
    """(inputs, target) of a pass."""
    rows = made.order.batch_size
    lo, hi = number * rows // made.passes, (number + 1) * rows // made.passes
    batch = made.train.batch(np.sort(made.order.batch(step)[lo:hi]), torch.float32, made.order.epoch(step))
    return batch.inputs, batch.target


# --- what cannot be ------------------------------------------------------------------------------------------------

LAZY = ({"name": "lag-wk"}, {"name": "lag-ps"}, {"name": "g-lag", "s": 0}, {"name": "lagc", "G": 2, "s": 0})


@pytest.mark.parametrize("scheme", LAZY, ids=lambda scheme: scheme["name"])
def test_lazy_schemes_refuse_what_is_another_at_each_step(scheme: Mapping[str, Any]) -> None:
    made = replace(case(), x=X[:64], y=Y[:64])
    with pytest.raises(ConfigError, match="uses old gradients again, but the forward of model 'model' changes buffer"):
        prepared_of(replace(made, scheme={**scheme, "alpha": 0.1}, optimizer={"name": "SGD", "lr": 0.1}))
