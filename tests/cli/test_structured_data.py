"""Several inputs, weights, drawn rows, a transform and a validation split: the whole way, against a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradmux import Job, Model, train
from gradmux.lambda_worker.gradient import mixed
from gradmux.lambda_worker.order import BatchOrder
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.data import Dataset
from gradmux.orchestrator.training.split import split

ROWS, STEPS, BATCH = 240, 6, 60


class Mixed(nn.Module):
    """Two inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(10, 4), nn.Linear(4 + 12, 3)

    def forward(self, pixels: Tensor, words: Tensor) -> Tensor:
        return self.out(torch.cat([pixels.flatten(1), self.words(words).mean(1)], dim=1))  # type: ignore[no-any-return]


def turned(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """One row: the picture turned over or not."""
    return {**inputs, "pixels": inputs["pixels"].flip(-1) if torch.rand(()) < 0.5 else inputs["pixels"]}


def rows() -> tuple[dict[str, Any], Any, Any]:
    generator = np.random.default_rng(4)
    pixels = generator.integers(0, 256, (ROWS, 3, 2, 2)).astype("u1")
    words = generator.integers(0, 10, (ROWS, 5))
    return {"pixels": pixels, "words": words}, generator.integers(0, 3, ROWS), generator.uniform(0, 2, ROWS)


def by_hand(x: dict[str, Any], y: Any, weights: Any, train_rows: Any, start: dict[str, Tensor]) -> nn.Module:
    """The plain loop: nothing of ours but the order of the rows and the seeds of the transform."""
    model = Mixed()
    model.load_state_dict(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    order = BatchOrder(len(train_rows), BATCH, seed=0)
    for step in range(STEPS):
        ids = order.batch(step)
        pixels = []
        for row in ids:
            torch.manual_seed(
                int(np.random.SeedSequence((0, step // (len(train_rows) // BATCH), int(row))).generate_state(1)[0])
            )
            picture = torch.from_numpy(x["pixels"][train_rows[row]])
            pixels.append(picture.flip(-1) if torch.rand(()) < 0.5 else picture)
        output = model(torch.stack(pixels) / 255, torch.from_numpy(x["words"][train_rows[ids]]))
        losses = nn.functional.cross_entropy(output, torch.from_numpy(y[train_rows[ids]]), reduction="none")
        weight = torch.from_numpy(weights[train_rows[ids]]).float()
        optimizer.zero_grad()
        ((losses * weight).sum() / weight.sum()).backward()
        optimizer.step()
    return model


def test_structured_rows_train_as_by_hand(tmp_path: Path) -> None:
    x, y, weights = rows()
    job = Job(
        models=[Model("mixed", factory=Mixed, optimizer=("SGD", {"lr": 0.5}))],
        data=(x, y, weights),
        rows={"validation": 0.25, "scale": 255.0},
        transform=turned,
        batch_size=BATCH,
        steps=STEPS,
        workers=4,
        scheme="gc",
        stragglers=1,
    )
    result = train(job, backend="local", home=tmp_path)
    numbered, _ = split(Dataset(np.arange(ROWS)), 0.25, 0)
    torch.manual_seed(mixed(0, "mixed"))
    start = Mixed().state_dict()
    expected = by_hand(x, y, weights, numbered.x, start)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(result["mixed"].state_dict()[name], tensor, atol=1e-5, rtol=1e-4)
    assert result.run.models[0].eval["loss"] > 0


def test_a_transform_that_raises_is_told_before_any_worker(tmp_path: Path) -> None:
    x, y, _ = rows()
    job = Job(
        models=[Model("mixed", factory=Mixed)], data=(x, y), transform=lambda row: row["none"], batch_size=8, steps=1
    )
    with pytest.raises(ConfigError, match=r"data\.transform, row 0: KeyError: 'none'"):
        train(job, home=tmp_path)
