"""How much memory a worker takes for a model and the rows of a task, and whether it has that.

`gradmux doctor` tells the same estimate. Knows no backend.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from math import ceil, prod
from typing import TYPE_CHECKING

from gradmux.lambda_worker.layout import Column
from gradmux.lambda_worker.order import KEPT_ROWS
from gradmux.lambda_worker.structure import SAMPLING
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from gradmux.orchestrator.training.dataset import Dataset

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


READ_MB = 64
"""Of rows that are being read: two shards that are mapped, or eight requests of 4 MiB and what becomes of them."""
ORDER_BYTES = 28
"""Of each row, of sets whose order is kept: random bits, places, and the orders of three epochs."""
SAMPLED_BYTES = 24
"""Of each row, where rows are drawn in proportion to a number: that, its share, and the sums of those."""
STEP_MB = 64
"""what is advised is a multiple of this"""


def memory_mb(model_bytes: int, rows_mb: float = 0.0) -> int:
    """What a worker takes at most for a model of this size, without the activations of its batch. MB.

    Held against models of 1 to 113 MB after nine rounds: 2 to 14 % above what each of them took.
    """
    model_mb = model_bytes / MB
    return round(WORKER_MB + COPIES * model_mb + min(SNAPSHOTS_MB, SNAPSHOTS * model_mb) + rows_mb)


def rows_mb(dataset: Dataset, task_rows: int, item_bytes: int) -> float:
    """What a worker takes to read so many rows of a set, and to hold them as floats of `item_bytes`. MB."""
    order = ORDER_BYTES * dataset.rows if dataset.rows <= KEPT_ROWS else 0
    sampled = SAMPLED_BYTES * dataset.rows if SAMPLING in {column.name for column in dataset.columns} else 0
    held = sum(_held_bytes(column, item_bytes) for column in dataset.columns)
    return min(dataset.bytes / MB, READ_MB) + (order + sampled + task_rows * held) / MB


def _held_bytes(column: Column, item_bytes: int) -> int:
    """Of one row: as it was read, and beside that as the floats that pictures and narrower or wider floats become."""
    becomes = column.dtype == "uint8" or column.dtype.startswith("float")
    same = column.dtype == f"float{8 * item_bytes}"
    return column.row_bytes + (prod(column.shape) * item_bytes if becomes and not same else 0)


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
        f"cluster.memory_mb = {_would_do(takes_mb)} would do, or training.pass_rows = {fits}"
    )
    if memory_mb(model_bytes) + TAKES_AT_LEAST * pass_rows * row_bytes / MB > has_mb * OVERSHOT:
        raise ConfigError(says)
    log.warning("%s", says)


def require_memory(modules: Iterable[nn.Module], has_mb: int, rows: float = 0.0, most_mb: int | None = None) -> None:
    """Warns when the largest model and `rows` MB of rows may not fit. Raises: ConfigError when they cannot.

    Both say what would do. `most_mb`: what a worker can have at most; None: no limit is known.
    """
    model_bytes = largest_bytes(modules)
    takes_mb = memory_mb(model_bytes, rows)
    if takes_mb <= has_mb:
        return
    parts = f"the largest model ({model_bytes / MB:,.1f} MB) and its rows ({rows:,.0f} MB)"
    says = f"cluster.memory_mb = {has_mb}: a worker takes {takes_mb} MB for {parts}, and activations on top"
    would_do = _would_do(takes_mb)
    if takes_mb <= has_mb * OVERSHOT:
        log.warning("%s: that is tight; cluster.memory_mb = %d would do", says, would_do)
        return
    if most_mb is not None and takes_mb > most_mb:
        raise ConfigError(
            f"{says}; no worker there has more than {most_mb} MB: train a smaller model, or fewer rows each"
        )
    raise ConfigError(f"{says}; cluster.memory_mb = {would_do} would do")


def _would_do(takes_mb: float) -> int:
    """What is advised where so much is taken."""
    return -(-ceil(takes_mb) // STEP_MB) * STEP_MB
