"""The global random states of torch, numpy and Python, which all threads of a process share: lent to one at a time.

Without the lock two jobs that are trained from two threads would draw each other's initial weights. Afterwards all
three are as they were. Knows no model.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_LENT = threading.RLock()
"""by the thread itself again: a factory may build a model by way of another"""


@contextmanager
def torch_random(seed: int | None = None) -> Iterator[None]:
    """Within it, torch, numpy's global generator and `random` draw from `seed` on (None: from where they stand).

    After it, all are as if nothing had been drawn.
    """
    with _LENT, torch.random.fork_rng(devices=[]):
        of_numpy, of_python = np.random.get_state(), random.getstate()
        try:
            if seed is not None:
                torch.default_generator.manual_seed(seed)
                np.random.seed(seed % 2**32)
                random.seed(seed)
            yield
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)


def draws() -> tuple[object, ...]:
    """Where the three stand: equal iff nothing has been drawn between two calls."""
    state = np.random.get_state(legacy=False)
    place = state["state"]
    return torch.get_rng_state().numpy().tobytes(), place["pos"], place["key"].tobytes(), random.getstate()
