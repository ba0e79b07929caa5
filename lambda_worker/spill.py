"""Which results travel inside the reply, and which through S3: by reply mode and encoded size.

AWS refuses a reply that is one byte too long, after the work is done; so the size is known before it is sent. All slots
share one reply: the largest results go to S3 first. Read `handler.py` next.
"""

from __future__ import annotations

from msgspec.structs import replace

from gradmux.lambda_worker.buffers import result_head
from gradmux.lambda_worker.contract import encoded_size
from gradmux.lambda_worker.errors import describe
from gradmux.lambda_worker.keys import result_key, state_key
from gradmux.lambda_worker.messages import MAX_REPLY_BYTES, Reply, Request, Result
from gradmux.lambda_worker.objects import ObjectStore, StoreError

__all__ = ["spill", "spilled"]


def spill(reply: Reply, request: Request, objects: ObjectStore) -> Reply:
    """The reply with as many results inline as its mode and limit allow; the others are in S3, or failed."""
    limit = min(request.reply.max_inline, MAX_REPLY_BYTES)
    while (index := _next_to_move(reply, request.reply.mode, limit)) is not None:
        result = reply.results[index]
        moved = _too_large(result, limit) if request.reply.mode == "inline" else _put(result, request, objects)
        reply = replace(reply, results=(*reply.results[:index], moved, *reply.results[index + 1 :]))
    return reply


def spilled(result: Result, key: str) -> Result:
    """The result as it is reported when its bytes lie in S3."""
    assert result.buffer is not None
    if result.stretch is not None:
        return replace(result, buffer=None, key=key)
    head = result_head(result.buffer)
    return replace(
        result,
        buffer=None,
        key=key,
        offset=head.offset,
        scale=head.scale,
        buffers=head.buffers,
        sums=head.sums,
        crc=head.crc,
    )


def _next_to_move(reply: Reply, mode: str, limit: int) -> int | None:
    """Index of the largest inline result, if one has to go."""
    inline = [index for index, result in enumerate(reply.results) if result.buffer is not None]
    if not inline or (mode != "s3" and encoded_size(reply) <= limit):
        return None
    return max(inline, key=lambda index: reply.results[index].size)


def _put(result: Result, request: Request, objects: ObjectStore) -> Result:
    assert result.buffer is not None
    stretched = result.stretch is not None
    key = state_key(request, result.slot, result.buffer) if stretched else result_key(request, result.slot)
    try:
        objects.put(key, bytes(result.buffer))
    except StoreError as error:
        return _failed(result, describe(error))
    return spilled(result, key)


def _too_large(result: Result, limit: int) -> Result:
    return _failed(
        result, f"ReplyTooLarge: a result of {result.size} bytes does not fit into a reply of {limit}; use mode auto"
    )


def _failed(result: Result, error: str) -> Result:
    return Result(result.slot, result.job, "failed", message=result.message, error=error)
