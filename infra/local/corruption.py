"""Replies that must not be used: one with a wrong character where a checksum must find it, one of another life.

Pure. Used by `runner.py` for the faults "corrupt" and "stale".
"""

from __future__ import annotations

import re

EPOCH = re.compile(rb'("epoch":\s*)(\d+)')
BASE64_RUN = re.compile(rb"[A-Za-z0-9+/]{16,}")


def corrupted(body: bytes | bytearray) -> bytes:
    """The same length and still JSON: one character in the middle of the longest base64 text is another one.

    A body without such a text gets its middle byte changed.
    """
    runs = max(BASE64_RUN.finditer(body), key=lambda run: run.end() - run.start(), default=None)
    middle = (runs.start() + runs.end()) // 2 if runs else len(body) // 2
    changed = bytearray(body)
    if changed:
        changed[middle] = ord("A") if changed[middle] != ord("A") else ord("B")
    return bytes(changed)


def of_another_life(body: bytes | bytearray) -> bytes:
    """The same reply with another epoch, as if it had been asked for before the run was resumed."""
    return EPOCH.sub(lambda found: found[1] + str(int(found[2]) + 1).encode(), bytes(body), count=1)
