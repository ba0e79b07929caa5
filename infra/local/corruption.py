"""A reply with one wrong character, placed where a checksum must find it.

Pure. Used by `invocation.py` for the fault "corrupt".
"""

from __future__ import annotations

import re

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
