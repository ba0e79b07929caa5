"""Has memory of large tensors go back to the system as soon as they are freed.

After some large tensors, glibc takes further ones of up to 32 MiB from a heap that it hardly ever shrinks: of a model
that is held once, two or three copies would stay. Knows no model. Called where large models are tried.
"""

from __future__ import annotations

import ctypes
from functools import cache

APART_BYTES = 4 * 2**20
MMAP_THRESHOLD = -3
"""glibc's M_MMAP_THRESHOLD"""


@cache
def keep_large_apart() -> None:
    """From now on, what has APART_BYTES or more has pages of its own. Does nothing under other C libraries."""
    try:
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, APART_BYTES)
    except (OSError, AttributeError):
        return


def give_back() -> None:
    """What was freed before goes back at once. Does nothing under other C libraries."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
