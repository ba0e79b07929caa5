"""Jobs at the edges of what can be asked, over the real stack: each trains as one ordinary process does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradmux.infra.local import FaultKind, FaultPlan, FaultRate
from gradmux.lambda_worker import flat
from gradmux.orchestrator.policies import Limits
from gradmux.orchestrator.training.data import Dataset
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.reference import train_reference
from tests.end_to_end.stage import IN_STORE, Job, Played, Stage
from tests.orchestrator.training.bench import make_dataset, mlp, tied

SGD: Mapping[str, Any] = {"optimizer": "SGD", "optimizer_args": {"lr": 0.2, "momentum": 0.9}}
PAIR = (ModelPlan("a", mlp, {"hidden": 4}, **SGD), ModelPlan("b", tied, optimizer="Adam", optimizer_args={"lr": 0.02}))
DELICATE = (
    ModelPlan("dropout", mlp, {"hidden": 12, "dropout": 0.3}, **SGD),
    ModelPlan("both", mlp, {"hidden": 9, "dropout": 0.5, "norm": True}, optimizer="AdamW"),
)
SCHEMES: Sequence[tuple[str, Mapping[str, int | str]]] = [
    ("uncoded", {}),
    ("gc", {"s": 2}),
    ("gc", {"s": 2, "code": "cyclic"}),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 2}),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 2, "code": "cyclic"}),
]
by_scheme = pytest.mark.parametrize(("scheme", "params"), SCHEMES, ids=str)


def assert_ordinary(played: Played, tolerance: float = 1e-5) -> None:
    """Weights and buffers equal those of ordinary training; with dropout, over the same chunks."""
    job, sizes = played.job, played.scheme.chunk_sizes
    draws = any(plan.args.get("dropout") for plan in job.plans)
    for index, plan in enumerate(job.plans):
        module, losses = train_reference(
            replace(plan, clip_norm=job.clip_norm),
            job.dataset,
            job.order,
            job.steps,
            chunk_sizes=sizes if draws else None,
        )
        wanted, got = (np.asarray(flat.snapshot(each)) for each in (module, played.trainer.module(index)))
        assert np.linalg.norm(got - wanted) <= tolerance * np.linalg.norm(wanted), plan.name
        told = [item for item in played.decoded if item.model == index]
        assert [item.loss for item in told] == pytest.approx(losses, rel=tolerance)
        assert {item.count for item in told} == {job.batch_size}


@by_scheme
@pytest.mark.parametrize("batch_size", [1, 5])
def test_batches_smaller_than_the_workers_are_many(
    stage: Stage, scheme: str, params: Mapping[str, int | str], batch_size: int
) -> None:
    """Most chunks are empty: their workers answer zero, which decodes."""
    job = Job(scheme=scheme, params=params, plans=PAIR, workers=9, steps=3, batch_size=batch_size)
    assert_ordinary(stage.play(job))


@by_scheme
def test_float64_agrees_to_1e_12(stage: Stage, scheme: str, params: Mapping[str, int | str]) -> None:
    plans = [ModelPlan(plan.name, plan.factory, plan.args, **SGD, dtype="float64") for plan in PAIR]
    dataset = make_dataset(rows=150, dtype="float64")
    job = Job(scheme=scheme, params=params, plans=plans, steps=3, dataset=dataset, dtype="float64")
    assert_ordinary(stage.play(job), tolerance=1e-12)


@by_scheme
def test_dropout_and_batch_norm(stage: Stage, scheme: str, params: Mapping[str, int | str]) -> None:
    """Whoever computes a chunk draws the same masks, second attempts too."""
    stage.emulator.set_faults(FaultPlan((FaultRate(FaultKind.CRASH, 0.1),), seed=2))
    job = Job(scheme=scheme, params=params, plans=DELICATE, steps=3, limits=Limits(attempts=6))
    assert_ordinary(stage.play(job))


@pytest.mark.parametrize("scheme", ["uncoded", "gc", "backup"])
def test_one_worker_one_model_one_step(stage: Stage, scheme: str) -> None:
    params = {"s": 0} if scheme == "gc" else {}
    assert_ordinary(stage.play(Job(scheme=scheme, params=params, plans=PAIR[:1], workers=1, steps=1)))


def test_everybody_computes_everything(stage: Stage) -> None:
    """s = n - 1, lambda = n: the ends of the ranges."""
    for scheme, params in [
        ("gc", {"s": 4}),
        ("m-sgc", {"B": 1, "W": 2, "lambda": 5}),
        ("sr-sgc", {"B": 1, "W": 2, "lambda": 5}),
    ]:
        assert_ordinary(stage.play(Job(scheme=scheme, params=params, plans=PAIR, workers=5, steps=2)))


def test_nobody_may_straggle(stage: Stage) -> None:
    """s = 0, lambda = 0."""
    for scheme, params in [
        ("gc", {"s": 0}),
        ("m-sgc", {"B": 1, "W": 2, "lambda": 0}),
        ("sr-sgc", {"B": 1, "W": 2, "lambda": 0}),
    ]:
        assert_ordinary(stage.play(Job(scheme=scheme, params=params, plans=PAIR, workers=5, steps=2)))


class Wide(nn.Module):
    """Large enough for its snapshot and its gradients to lie in the store."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 1200), nn.Tanh(), nn.Linear(1200, 1200), nn.Tanh(), nn.Linear(1200, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("code", ["fractional", "cyclic"])
def test_gradients_that_no_reply_can_carry_go_through_the_store(stage: Stage, code: str) -> None:
    plans = [ModelPlan("wide", Wide, **SGD), PAIR[0]]
    job = Job(scheme="gc", params={"s": 1, "code": code}, plans=plans, workers=4, steps=2, inline_bytes=IN_STORE)
    played = stage.play(job)
    assert_ordinary(played)
    assert stage.store.list(f"runs/{played.run}/results/")


def test_regression_with_several_targets_clipping_and_schedulers(stage: Stage) -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((120, 6)).astype(np.float32)
    dataset = Dataset(x, (x[:, :3] * 20).astype(np.float32))
    plans = [
        ModelPlan(
            "steps", mlp, {"hidden": 5}, **SGD, loss="mse_loss", scheduler="StepLR", scheduler_args={"step_size": 2}
        ),
        ModelPlan(
            "cosine",
            mlp,
            {"hidden": 5},
            **SGD,
            loss="smooth_l1_loss",
            scheduler="CosineAnnealingLR",
            scheduler_args={"T_max": 5},
        ),
    ]
    job = Job(scheme="m-sgc", params={"B": 1, "W": 2, "lambda": 2}, plans=plans, dataset=dataset, clip_norm=0.5)
    assert_ordinary(stage.play(job))


def test_sixty_four_workers(big_stage: Stage) -> None:
    big_stage.lambda_like(0.02, workers=64)
    for scheme, params in [("gc", {"s": 7}), ("m-sgc", {"B": 1, "W": 2, "lambda": 8})]:
        job = Job(scheme=scheme, params=params, plans=PAIR, workers=64, steps=2, batch_size=130)
        assert_ordinary(big_stage.play(job))
