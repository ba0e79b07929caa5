"""Rows that interact only once training is under way: found at the next checkpoint, said, and exact when it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradmux import Job, Model, train
from gradmux.orchestrator.backends import open_place
from gradmux.orchestrator.errors import RowsInteract
from gradmux.orchestrator.runs.keep import prepare_again
from gradmux.orchestrator.runs.paths import find_run
from gradmux.orchestrator.runs.train import run_job

RNG = np.random.default_rng(1)
X = RNG.normal(size=(96, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=(6, 3))).argmax(1)
STEPS, EVERY = 12, 4


class Late(nn.Module):
    """Centres its rows as soon as its bias, which begins at zero and then grows, is large."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.layer.bias.detach().abs().max() > 0.1:
            x = x - x.mean(0)
        return self.layer(x)  # type: ignore[no-any-return]


def job(workers: int) -> Job:
    models = [Model("late", Late, optimizer=("Adam", {"lr": 0.02}))]
    return Job(
        models=models, data=(X, Y), batch_size=64, steps=STEPS, workers=workers, checkpoint_every=EVERY, name="late"
    )


def stopped_and_resumed(workers: int, home: Path) -> list[Tensor]:
    with pytest.raises(RowsInteract, match=r"after 8 steps: rows interact in the forward of Late.*passes of up to 32"):
        train(job(workers), home=home)
    paths = find_run(home, "late-1")
    assert json.loads(paths.job.read_text())["training"]["pass_rows"] == 32
    assert [path.name for path in sorted(paths.checkpoints.iterdir())] == ["000000-0000000004.zip"], (
        "the last clean one"
    )
    prepared = prepare_again(paths)
    with open_place(prepared.config) as place:
        trained = run_job(prepared, place, paths)
    return [parameter.detach() for parameter in trained["late"].parameters()]


def test_interaction_that_begins_late_stops_the_run_which_goes_on_exactly(tmp_path: Path) -> None:
    two, three = (stopped_and_resumed(workers, tmp_path / str(workers)) for workers in (2, 3))
    for one, other in zip(two, three, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
