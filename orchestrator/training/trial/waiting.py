"""Tensors that are to be again what they are now, kept on disk meanwhile: for models that fit into memory once.

Knows no model. Used by `playing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from gradmux.lambda_worker import flat
from gradmux.orchestrator.training.spool import Spool


@contextmanager
def on_disk(tensors: Sequence[Tensor]) -> Iterator[None]:
    """After it, the tensors hold what they held before. Raises: DiskError when there is no room for them."""
    spool = Spool()
    path = spool.write(flat.to_view(each.reshape(-1)) for each in tensors)
    try:
        yield
    finally:
        _read(tensors, np.memmap(path, np.uint8, "r"))


@torch.no_grad()
def _read(tensors: Sequence[Tensor], raw: np.memmap) -> None:
    at = 0
    for tensor in (each for each in tensors if each.nbytes):
        array = np.array(raw[at : at + tensor.nbytes])  # a copy of one tensor: torch warns of maps that only read
        tensor.copy_(torch.from_numpy(array).view(tensor.dtype).view(tensor.shape))
        at += tensor.nbytes
