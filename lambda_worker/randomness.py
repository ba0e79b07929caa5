"""torch's global random state, which all threads of a process share: lent to one at a time, and left as it was.

Without the lock two jobs that are trained from two threads would draw each other's initial weights. Knows no model.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LENT = threading.RLock()
"""by the thread itself again: a factory may build a model by way of another"""


@contextmanager
def torch_random(seed: int | None = None) -> Iterator[None]:
    """Within it, torch draws from `seed` on (None: from where it stands); after it, as if nothing had been drawn."""
    with _LENT, torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        yield
