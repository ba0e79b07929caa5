"""The plain loop is plain torch's, workers agree with it, and where they do not the doctor says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmux import Job, Model, train_reference
from gradmux.lambda_worker.gradient import mixed
from gradmux.orchestrator.compare import Compared, compare_models
from gradmux.orchestrator.findings import Level
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.order import BatchOrder

ROWS, BATCH, STEPS = 64, 24, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(ROWS, 6)).astype(np.float32)
LABELS = RNG.integers(4, size=ROWS)
LABELS[::7] = -100
TOKENS = RNG.integers(9, size=(ROWS, 5))
NEXT = np.where(RNG.random((ROWS, 5)) < 0.3, -100, RNG.integers(4, size=(ROWS, 5)))
VALUES = RNG.normal(size=(ROWS, 3)).astype(np.float32)
WEIGHT = torch.tensor([0.1, 1.0, 2.0, 5.0])


def mlp(outputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, outputs))


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.4), nn.ReLU(), nn.Linear(16, 4))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


class Tagger(nn.Module):
    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens)).transpose(1, 2)  # type: ignore[no-any-return]


class Named(dict[str, Tensor]):
    @property
    def logits(self) -> Tensor:
        return self["logits"]


class WithAuxiliary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor) -> Named:
        return Named(logits=self.body(x), penalty=x.square().mean(1))


def with_penalty(output: Named, target: Tensor) -> tuple[Tensor, int]:
    each = F.cross_entropy(output.logits, target, reduction="none") + output["penalty"] * output.logits.square().mean(1)
    return each.sum(), int((target >= 0).sum())


class Running(nn.Module):
    """Centres by a moving average of its inputs, and counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.3)
            self.count += 1
        return self.linear(x - self.mean)  # type: ignore[no-any-return]


class LayerDrop(nn.Module):
    """Leaves out its middle by numpy's own dice, and centres its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if np.random.rand() > 0.5:
            x = x + torch.relu(self.first(x - x.mean(0)))
        return self.last(x)  # type: ignore[no-any-return]


CASES: dict[str, tuple[Callable[..., nn.Module], Any, Any, dict[str, Any]]] = {
    "ignored targets": (mlp, (X, LABELS), "cross_entropy", {}),
    "class weights and smoothing": (mlp, (X, LABELS), nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.1), {}),
    "tokens, sparse embedding": (Tagger, (TOKENS, NEXT), "cross_entropy", {}),
    "several outputs": (lambda: mlp(3), (X, VALUES), "mse_loss", {}),
    "huber": (lambda: mlp(3), (X, VALUES), nn.HuberLoss(delta=0.3), {}),
    "sum and count of a mapping": (WithAuxiliary, (X, LABELS), with_penalty, {}),
    "dropout": (dropped, (X, np.abs(LABELS) % 4), "cross_entropy", {}),
    "batch norm": (normed, (X, np.abs(LABELS) % 4), "cross_entropy", {}),
    "running input by pass": (Running, (X, np.abs(LABELS) % 4), "cross_entropy", {}),
    "layer drop by pass": (LayerDrop, (X, np.abs(LABELS) % 4), "cross_entropy", {}),
    "batch norm by pass": (normed, (X, np.abs(LABELS) % 4), "cross_entropy", {}),
    "groups, warm-up, average": (
        mlp,
        (X, LABELS),
        "cross_entropy",
        {
            "optimizer": ("AdamW", {"lr": 0.01, "groups": [{"layers": ["*Norm*"], "weight_decay": 0.0}]}),
            "scheduler": ("WarmupCosine", {"warmup_steps": 1}),
            "ema": 0.5,
        },
    ),
}


def job(name: str, **changes: Any) -> Job:
    factory, data, loss, model = CASES[name]
    model = {"optimizer": ("SGD", {"lr": 0.1, "momentum": 0.9}), **model}
    passes = {"pass_rows": 7, "norms": "batch"} if "by pass" in name else {}
    fields: dict[str, Any] = {"scheme": "gc", "stragglers": 1, "workers": 4, "clip_norm": 1.0, **passes, **changes}
    return Job(models=[Model("m", factory, **model)], data=data, batch_size=BATCH, steps=STEPS, loss=loss, **fields)


def compared(described: Job, folder: Path) -> Compared:
    prepared = prepare_job(described.config(), described.materials(), folder, lambda bucket: MemoryStore())
    (found,) = compare_models(prepared, folder)
    return found


@pytest.mark.parametrize("name", CASES)
def test_workers_agree_with_the_plain_loop(name: str, tmp_path: Path) -> None:
    found = compared(job(name), tmp_path)
    assert found.difference < 1e-4, "of the weights' change in three steps"
    assert found.change > 1e-4, "and they did change"
    assert found.losses[0] == pytest.approx(found.losses[1], rel=1e-5)


@pytest.mark.parametrize("name", ["ignored targets", "class weights and smoothing", "several outputs"])
def test_the_plain_loop_is_torchs_own(name: str) -> None:
    """Written out once more, as a user would."""
    factory, (x, y), loss, _ = CASES[name]
    criterion = getattr(F, loss) if isinstance(loss, str) else loss
    torch.manual_seed(mixed(5, "m"))  # models are seeded by the job's seed and their names
    module = factory()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        rows = np.sort(BatchOrder(ROWS, BATCH, 5).batch(step))
        optimizer.zero_grad()
        value = criterion(module(torch.from_numpy(x[rows])), torch.from_numpy(y[rows]))
        value.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(value.item())
    found = train_reference(job(name, seed=5, scheme="uncoded", stragglers=None))
    assert found.losses["m"] == pytest.approx(losses, rel=1e-5)
    for mine, theirs in zip(module.parameters(), found["m"].parameters(), strict=True):
        torch.testing.assert_close(theirs, mine, rtol=1e-4, atol=1e-6)
    assert len(train_reference(job(name), steps=1).losses["m"]) == 1


def test_an_average_is_compared_as_well(tmp_path: Path) -> None:
    from gradmux import train

    described = job("groups, warm-up, average")
    expected, trained = train_reference(described), train(described, home=tmp_path)
    assert expected.averages.keys() == trained.averages.keys() == {"m"}
    for mine, theirs in zip(expected.averages["m"].parameters(), trained.averages["m"].parameters(), strict=True):
        torch.testing.assert_close(theirs, mine, rtol=1e-4, atol=1e-6)
    assert not torch.equal(trained.averages["m"][0].weight, trained["m"][0].weight)  # type: ignore[index]
    assert (trained.run.record.parent / "weights" / "ema" / "m.safetensors").exists()


def test_a_difference_is_a_failure_and_an_estimate_a_warning() -> None:
    from gradmux.orchestrator.compare import _finding

    config = job("huber").config()
    same, other = (Compared("m", difference, 0.1, (1.0, 1.0)) for difference in (1e-6, 0.2))
    assert _finding(same, config, exact=True).level is Level.OK
    assert _finding(other, config, exact=True).level is Level.FAILURE
    assert _finding(other, config, exact=False).level is Level.WARNING
