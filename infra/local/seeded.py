"""Random numbers that depend only on what they are drawn for, so that order, threads and restarts change nothing.

Pure. Used by `injection.py` and `faults.py`.
"""

from __future__ import annotations

import hashlib
import struct

HASH_RANGE = 2.0**64


def uniform(seed: int, purpose: str, round: int, worker: int, attempt: int) -> float:
    """A number in [0, 1), the same for the same arguments on every machine."""
    text = f"{seed}/{purpose}/{round}/{worker}/{attempt}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    value: int = struct.unpack("<Q", digest)[0]
    return (value >> 11) * 2048 / HASH_RANGE
