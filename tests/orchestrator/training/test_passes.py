"""Training in fixed passes: the weights of a plain loop over the same passes, under any code and number of workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmux.lambda_worker.gradient import mixed
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import pass_count
from gradmux.orchestrator.training.requests import Wire
from tests.orchestrator.training.bench import Run

STEPS, BATCH, PASS_ROWS = 5, 20, 6
CODES = {
    "uncoded": ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1, 1, 1]),
    "cyclic": ([[1.0, -0.5, 0.0], [0.0, 2.0, 4 / 3]], [1.0, 0.75]),
    "one worker": ([[1, 1, 1]], [1]),
}


class Counting(nn.Module):
    """Batch norm, dropout, centring and buffers: all that interacts, draws or keeps."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("level", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.first(x - x.mean(0)))
        self.seen += len(x)
        self.level.lerp_(hidden.detach().abs().mean(0), 0.1)
        return self.last(F.dropout(hidden - 0.1 * self.level + 0.001 * self.seen, 0.3, self.training))


def plain_loop(run: Run, features: int, seed: int = 0) -> tuple[nn.Module, list[float]]:
    """Nothing of ours but the order of the rows and the seed of a pass: each pass begins with the step's buffers."""
    torch.manual_seed(mixed(seed, "m"))
    module = Counting(features).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.from_numpy(run.dataset.arrays["x"]).double(), torch.from_numpy(run.dataset.arrays["y"])
    passes, losses = pass_count(BATCH, PASS_ROWS), []
    seen: list[Tensor] = []
    module.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    for step in range(STEPS):
        start = {name: buffer.clone() for name, buffer in module.named_buffers()}
        after_first: dict[str, Tensor] = {}
        optimizer.zero_grad()
        total = 0.0
        seen.clear()
        for number in range(passes):
            for name, buffer in module.named_buffers():
                buffer.copy_(start[name])
            ids = torch.from_numpy(run.order.rows_of(step, passes, number, number + 1).astype(np.int64))
            torch.manual_seed(mixed(mixed(mixed(seed, "m"), step), number))
            loss = F.cross_entropy(module(x[ids]), y[ids], reduction="sum")
            (loss / BATCH).backward()
            total += loss.item()
            after_first = after_first or {name: buffer.clone() for name, buffer in module.named_buffers()}
        optimizer.step()
        for name, buffer in module.named_buffers():
            buffer.copy_(after_first[name])
        whole = torch.cat(seen)
        module.norm.running_mean.copy_(start["norm.running_mean"]).lerp_(whole.mean(0), 0.1)
        module.norm.running_var.copy_(start["norm.running_var"]).lerp_(whole.var(0), 0.1)
        losses.append(total / BATCH)
    return module, losses


@pytest.mark.parametrize("code", CODES)
def test_the_weights_and_buffers_of_a_plain_loop(code: str, tmp_path: Path) -> None:
    features = Run([ModelPlan("probe", Counting, {"features": 1})], tmp_path).dataset.arrays["x"].shape[1]
    plan = ModelPlan(
        "m", Counting, {"features": features}, "SGD", {"lr": 0.1, "momentum": 0.9},
        dtype="float64", pass_rows=PASS_ROWS, norms="batch",
    )  # fmt: skip
    run = Run([plan], tmp_path, steps=STEPS, batch_size=BATCH, wire=Wire("float64"))
    rows, weights = CODES[code]
    losses = run.play(rows, weights)
    module, expected = plain_loop(run, features)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    ours = dict(run.trainer.module(0).state_dict())
    for name, value in module.state_dict().items():
        torch.testing.assert_close(ours[name], value, rtol=1e-8, atol=1e-10, msg=name)
    assert int(ours["seen"]) > 0


def test_passes_differ_by_a_row_at_most() -> None:
    assert [pass_count(20, rows) for rows in (None, 1, 6, 7, 20, 99)] == [20, 20, 4, 3, 1, 1]
