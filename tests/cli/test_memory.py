"""A model that cannot fit into a worker is refused, one that may not is warned of: by the doctor's estimate."""

from __future__ import annotations

import logging

import pytest
from torch import nn

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.memory import OVERSHOT, largest_bytes, memory_mb, require_memory

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
        f"cluster.memory_mb = {takes_mb - 1}: a worker takes {takes_mb} MB for the largest model, and its batch on "
        "top: that is tight"
    ]
    with pytest.raises(ConfigError, match=rf"a worker takes {takes_mb} MB .*; give it more"):
        require_memory(MODULES, int(takes_mb / OVERSHOT) - 1)
