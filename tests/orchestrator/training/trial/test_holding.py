"""What a forward holds for its backward is counted, and by it passes fit into a worker's memory, or are told not to."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

from gradmux.lambda_worker.losses import loss_from
from gradmux.lambda_worker.models import Model
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.memory import MB, TAKES, memory_mb, require_pass, rows_that_fit
from gradmux.orchestrator.training.trial.holding import bytes_per_row
from gradmux.orchestrator.training.trial.playing import RowsOf
from scripts.exactness.cases import X, Y
from scripts.exactness.here import Case, play, prepared_of

WIDE = 512


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(20, WIDE), nn.Tanh(), nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 5))


def test_what_rows_hold_is_counted_storage_by_storage() -> None:
    model = Model(wide(), loss_from("cross_entropy", "cross_entropy"))
    rows = RowsOf(Dataset(X, Y), torch.float32)
    found = bytes_per_row(model, rows, 4)
    held = 4 * (20 + WIDE + WIDE + 5 + 5) + 8  # inputs, two outputs of tanh, scores and what the loss keeps, labels
    assert held <= found <= 1.2 * held
    assert bytes_per_row(Model(nn.Linear(20, 5), loss_from("cross_entropy", "l")), rows, 4) < 0.1 * found


def test_as_many_rows_as_there_is_room_for() -> None:
    room_mb = 2048 - memory_mb(10 * MB)
    assert rows_that_fit(1e6, 10 * MB, 2048) == int(room_mb * MB / (TAKES * 1e6))
    assert rows_that_fit(1e12, 10 * MB, 2048) == 1
    assert rows_that_fit(0.0, 10 * MB, 2048) > 10**8


def test_fixed_passes_that_do_not_fit_are_told(caplog: pytest.LogCaptureFixture) -> None:
    require_pass("m", 32, 1e6, MB, 2048)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        require_pass("m", 1500, 1e6, MB, 2048)
    assert "; cluster.memory_mb = 3136 would do, or training.pass_rows = " in caplog.text
    with pytest.raises(ConfigError, match="a pass of 9000 rows of model 'm' takes up to 1"):
        require_pass("m", 9000, 1e6, MB, 2048)


def test_a_share_beyond_memory_is_cut_and_trains_the_same_model() -> None:
    made = prepared_of(Case("wide", "memory", wide, X, Y))
    assert made.models[0].pass_rows is None
    assert made.models[0].most_rows is not None
    assert made.models[0].most_rows > 10_000
    small = replace(made, models=(replace(made.models[0], most_rows=5),))
    for one, other in zip(
        play(made).trainer.module(0).parameters(), play(small).trainer.module(0).parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert not torch.equal(one, other) or one.numel() < 10, "another cut rounds otherwise"
