"""A model that cannot fit into a worker is refused, one that may not is warned of: by the doctor's estimate."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.memory import OVERSHOT, largest_bytes, memory_mb, require_memory, rows_mb
from tests.cli.conftest import Gradmux

MEANS = """
from torch import nn


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, x):
        return self.head(x.mean(1, keepdim=True)).squeeze(1)
"""
MODULES = [nn.Linear(9, 9), nn.BatchNorm1d(2**19), nn.Linear(3, 3)]


def test_buffers_count() -> None:
    assert largest_bytes(MODULES) == 4 * 4 * 2**19 + 8, "weight, bias, mean and variance, and a counter"


def test_what_cannot_fit_is_refused_and_what_may_not_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    takes_mb = memory_mb(largest_bytes(MODULES))
    with caplog.at_level(logging.WARNING):
        require_memory(MODULES, takes_mb)
        assert not caplog.messages
        require_memory(MODULES, takes_mb - 1)
    assert caplog.messages == [
        f"cluster.memory_mb = {takes_mb - 1}: a worker takes {takes_mb} MB for the largest model (8.0 MB) and its rows "
        f"(0 MB), and activations on top: that is tight; cluster.memory_mb = {would_do(takes_mb)} would do"
    ]
    with pytest.raises(
        ConfigError, match=rf"a worker takes {takes_mb} MB .*; cluster\.memory_mb = {would_do(takes_mb)} would do"
    ):
        require_memory(MODULES, int(takes_mb / OVERSHOT) - 1)


def would_do(takes_mb: int) -> int:
    return next(size for size in range(64, 10_241, 64) if size >= takes_mb)


def test_what_is_said_to_do_does(caplog: pytest.LogCaptureFixture) -> None:
    rows = 777.0
    with pytest.raises(ConfigError) as refusal:
        require_memory(MODULES, 256, rows)
    advised = int(str(refusal.value).rpartition("cluster.memory_mb = ")[2].split()[0])
    with caplog.at_level(logging.WARNING):
        require_memory(MODULES, advised, rows)
    assert not caplog.messages


def test_where_no_worker_has_so_much_that_is_said() -> None:
    with pytest.raises(ConfigError, match=r"no worker there has more than 10240 MB: train a smaller model") as refusal:
        require_memory(MODULES, 10_240, 12_000.0, 10_240)
    assert "would do" not in str(refusal.value)


def test_rows_take_what_is_read_what_is_held_and_what_their_order_takes() -> None:
    """10,000 rows of 1,000 bytes and a class of 8: 9.6 MB are read; of 500 rows, 1,008 bytes and 1,000 floats each."""
    rows = Dataset(np.zeros((10_000, 1000), np.uint8), np.zeros(10_000, np.int64))
    read, order, held = 10_000 * 1008, 28 * 10_000, 500 * (1008 + 1000 * 4)
    assert rows_mb(rows, 500, 4) == pytest.approx((read + order + held) / 2**20)


def test_a_job_is_refused_with_the_setting_and_what_would_do(gradmux: Gradmux, tmp_path: Path) -> None:
    """Eight rows of 24 MB each: no worker of 256 MB can hold its half of them."""
    np.save(tmp_path / "x.npy", np.zeros((8, 6_000_000), np.float32))
    np.save(tmp_path / "y.npy", np.zeros(8, np.float32))
    (tmp_path / "means.py").write_text(MEANS)
    job = tmp_path / "job.toml"
    job.write_text(
        'scheme = { name = "uncoded" }\ncluster = { workers = 2, memory_mb = 320 }\n'
        'data = { train = "x.npy", batch_size = 8 }\ntraining = { steps = 1, loss = "mse_loss" }\n'
        'models = [{ name = "mean", factory = "means:Mean" }]\n'
    )
    ran = gradmux("submit", str(job), "--dry-run")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "cluster.memory_mb = 320: a worker takes 416 MB" in ran.err
    assert ran.err.rstrip().endswith("cluster.memory_mb = 448 would do")
