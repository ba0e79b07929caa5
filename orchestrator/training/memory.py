"""How much memory a model takes in a worker, and whether a job's largest one fits.

`gradmux doctor` tells the same estimate. Knows no backend.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)

MB = 2**20
WORKER_MB = 260
"""Resident after one small task, with torch 2.13: 229 MB after the import, 251 with a model of 1 MB."""
OVERSHOT = 1.14
"""By what factor `memory_mb` was above what models took, at most: beyond it a model cannot fit."""
COPIES = 5
"""Of a model's parameters while it answers: module, gradient, coded sum, buffer, its encoding."""
SNAPSHOTS_MB = 256
"""The worker's cache of snapshots (`gradmux.lambda_worker.sandbox`)."""
TAKES = 2.0
"""What a forward and backward take beyond the model, as a multiple of what the forward holds for its backward. Measured
with 512 rows: 1.63 (CNN), 1.74 (MLP), 1.62 (transformer), 0.73 (LSTM)."""
TAKES_AT_LEAST = 0.7
LEAST_MB = 64
"""left to the activations of a model that hardly fits"""
SNAPSHOTS = 7
"""Kept beside the one in use."""


def memory_mb(model_bytes: int) -> int:
    """What a worker takes at most for a model of this size, without the activations of its batch. MB.

    Held against models of 1 to 113 MB after nine rounds: 2 to 14 % above what each of them took.
    """
    model_mb = model_bytes / MB
    return round(WORKER_MB + COPIES * model_mb + min(SNAPSHOTS_MB, SNAPSHOTS * model_mb))


def largest_bytes(modules: Iterable[nn.Module]) -> int:
    """Parameters and buffers of the largest of them."""
    return max(sum(each.nbytes for each in (*module.parameters(), *module.buffers())) for module in modules)


def rows_that_fit(row_bytes: float, model_bytes: int, has_mb: int) -> int:
    """How many rows one forward and backward may have in a worker, if each holds so many bytes; 1 at least."""
    room_mb = max(LEAST_MB, has_mb - memory_mb(model_bytes))
    return max(1, int(room_mb * MB / (TAKES * max(1.0, row_bytes))))


def require_pass(name: str, pass_rows: int, row_bytes: float, model_bytes: int, has_mb: int) -> None:
    """Warns when a pass of the model may not fit. Raises: ConfigError when it cannot."""
    fits = rows_that_fit(row_bytes, model_bytes, has_mb)
    if pass_rows <= fits:
        return
    takes_mb = memory_mb(model_bytes) + TAKES * pass_rows * row_bytes / MB
    says = (
        f"cluster.memory_mb = {has_mb}: a pass of {pass_rows} rows of model {name!r} takes up to {takes_mb:.0f} MB; "
        f"give it more, or set training.pass_rows = {fits}"
    )
    if memory_mb(model_bytes) + TAKES_AT_LEAST * pass_rows * row_bytes / MB > has_mb * OVERSHOT:
        raise ConfigError(says)
    log.warning("%s", says)


def require_memory(modules: Iterable[nn.Module], has_mb: int) -> None:
    """Warns when the largest model may not fit. Raises: ConfigError when it cannot."""
    takes_mb = memory_mb(largest_bytes(modules))
    says = f"cluster.memory_mb = {has_mb}: a worker takes {takes_mb} MB for the largest model, and its batch on top"
    if takes_mb > has_mb * OVERSHOT:
        raise ConfigError(f"{says}; give it more")
    if takes_mb > has_mb:
        log.warning("%s: that is tight", says)
