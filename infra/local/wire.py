"""Frames between the endpoint and its workers: a fixed little-endian header, then the payload as it came.

Knows nothing of what the payload says. The worker's side is `worker.py`, the endpoint's side `sandbox.py`;
orders and notices go between `pool.py` and `zygote.py`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

CALL = struct.Struct("<QIHI36s")
"""deadline (ms since 1970), payload bytes, ARN bytes, client context bytes, request id; then ARN, context, payload"""

REPLY = struct.Struct("<BIQ")
"""ReplyKind, body bytes, peak resident memory (KB); then the body"""

ORDER = struct.Struct("<cII")
"""to the zygote: b"S"tart or b"K"ill, sandbox number, signal; a start carries two descriptors, socket and log"""

NOTICE = struct.Struct("<cIi")
"""from the zygote: b"P"id or e"X"it, sandbox number, pid or wait status; b"R"eady; b"E"rror, followed by its text"""


class ReplyKind(IntEnum):
    """What a worker says."""

    READY = 0
    """waits for the first call"""
    RESULT = 1
    ERROR = 2
    """the handler raised; the body is AWS's error object"""
    BAD_REQUEST = 3
    """the payload is no JSON; the body says why"""
    INIT_ERROR = 4
    """the handler cannot be loaded; the body is AWS's error object"""
