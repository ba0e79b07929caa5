"""Metrics by name or by function: what they are called, what is refused, and that evaluation has them, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmux import Job, Model
from gradmux.lambda_worker.metrics import metric_from, metric_sums, metrics_in
from gradmux.lambda_worker.structure import Weighted
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs.keep import keep_job, prepare_again
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.trainer import TorchTrainer
from scripts.exactness.cases import X, Y

SCORES = torch.tensor([[3.0, 1, 2], [0, 5, 1], [1, 2, 9], [4, 0, 0]])
LABELS = torch.tensor([0, 2, 2, -100])


def hits(output: Tensor, target: Tensor) -> Tensor:
    return output.argmax(1) == target


def spread(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    return output.square().sum(), output.numel()


def mean(output: Tensor, target: Tensor) -> Tensor:
    return output.mean()


def broken(output: Tensor, target: Tensor) -> Tensor:
    raise KeyError("nothing here")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("accuracy", LABELS, (2.0, 3.0)),
        ("top_5_accuracy", LABELS, (3.0, 3.0)),
        (hits, LABELS, (2.0, 4.0)),
        (spread, LABELS, (float(SCORES.square().sum()), 12.0)),
        ("l1_loss", torch.zeros(4, 3), (28.0, 12.0)),
        (nn.L1Loss(), torch.zeros(4, 3), (28.0, 12.0)),
        ("accuracy", Weighted(LABELS, torch.tensor([9.0, 9, 9, 9])), (2.0, 3.0)),
    ],
)
def test_a_metric_is_a_sum_and_a_count(source: Any, target: Any, expected: tuple[float, float]) -> None:
    metrics = {"m": metric_from(source, "m")}
    assert metrics_in(metrics, metric_sums(metrics, SCORES, target)) == {"m": pytest.approx(expected)}


def prepared(metrics: Sequence[Any]) -> Prepared:
    models = [Model("m", lambda: nn.Linear(20, 5), optimizer=("SGD", {"lr": 0.1}))]
    job = Job(models=models, data=(X, Y), eval_data=(X, Y), batch_size=64, steps=1, workers=2, metrics=metrics)
    return prepare_job(job.config(), job.materials(), Path.cwd(), lambda _: MemoryStore())


def evaluated(made: Prepared) -> dict[str, float]:
    assert made.eval is not None
    trainer = TorchTrainer(made.models, made.plan, store=MemoryStore(), keys=Keys("k"))
    told = trainer.evaluate(0, made.eval)
    return {**told.metrics, "loss": told.loss, "right": told.accuracy or 0.0}


def test_evaluation_has_them_and_a_resumed_run_does(tmp_path: Path) -> None:
    made = prepared([hits, "accuracy", "cross_entropy", spread])
    found = evaluated(made)
    assert found["hits"] == found["accuracy"] == found["right"]
    assert found["cross_entropy"] == pytest.approx(found["loss"], rel=1e-6)
    again = prepare_again(keep_job(made, tmp_path, tmp_path))
    assert evaluated(again) == found
    assert [name for name, _ in again.models[0].metrics] == ["hits", "accuracy", "cross_entropy", "spread"]


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ([mean], "metric 'mean' returns a number that is no sum over the rows|metric 'mean' returns a mean"),
        ([broken], "metric 'broken' raised KeyError"),
        (["no_such"], "no_such"),
        ([hits, "elsewhere:hits"], "names must differ"),
        (["somewhere:loss"], "not be that of the loss"),
    ],
)
def test_what_is_no_metric_is_refused(metrics: Sequence[Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        prepared(metrics)
    assert "\n" not in str(refused.value)


def test_models_without_metrics_have_none() -> None:
    assert evaluated(prepared([])).keys() == {"loss", "right"}
    assert replace(prepared([]).models[0]).metrics == ()
