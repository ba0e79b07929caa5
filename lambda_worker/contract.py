"""What travels between the orchestrator and a worker, version 3: requests and replies as JSON, their limits.

Both sides use this file, and need no other: `encode_request` and `parse_reply` are the orchestrator's, `parse_request`
and `reply_json` the worker's. Everything is checked on arrival; malformed input raises ContractError with one line
that says where. It does not import torch (only float16 results do, when they are coded), and knows neither models
nor S3. Read `messages.py` for the fields, `codec.py` for how they are checked, `keys.py` for S3 key names,
`buffers.py` for the bytes of one result, then `handler.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from gradmux.lambda_worker.buffers import (
    DTYPES,
    FIXED_SUMS,
    NonFiniteResult,
    SumIndex,
    checksum,
    decode_result,
    encode_result,
    gradient_offset,
    result_size,
)
from gradmux.lambda_worker.codec import (
    ContractError,
    VersionError,
    base64_size,
    cut_texts,
    decode,
    from_base64,
    to_base64,
)
from gradmux.lambda_worker.keys import cancel_marker, cancelled_epoch, early_key, reply_key, result_key, stem
from gradmux.lambda_worker.messages import (
    LOST,
    MAX_REPLY_BYTES,
    PROTOCOL,
    Divergence,
    Figures,
    Order,
    Reduction,
    Reply,
    ReplyMode,
    Request,
    Result,
    Rows,
    Skip,
    Source,
    State,
    Stretch,
    Stretched,
    Task,
    Term,
    Timing,
    Weights,
)

__all__ = [
    "DTYPES",
    "FIXED_SUMS",
    "LOST",
    "MAX_EVENT_BYTES",
    "MAX_REPLY_BYTES",
    "MAX_REQUEST_BYTES",
    "PROTOCOL",
    "ContractError",
    "Divergence",
    "Figures",
    "NonFiniteResult",
    "Order",
    "Reduction",
    "Reply",
    "ReplyMode",
    "Request",
    "Result",
    "Rows",
    "Skip",
    "Source",
    "State",
    "Stretch",
    "Stretched",
    "SumIndex",
    "Task",
    "Term",
    "Timing",
    "VersionError",
    "Weights",
    "base64_size",
    "cancel_marker",
    "cancelled_epoch",
    "decode_result",
    "early_key",
    "encode_request",
    "encode_result",
    "encoded_size",
    "fits_inline",
    "gradient_offset",
    "parse_reply",
    "parse_request",
    "reply_json",
    "reply_key",
    "request_json",
    "result_key",
    "result_size",
    "stem",
]

MAX_REQUEST_BYTES = 6_291_456
"""AWS: the JSON of a synchronous request, at most."""
MAX_EVENT_BYTES = 1_048_576
"""AWS: the JSON of an Event invocation, at most."""

LONG_REPLY_BYTES = 4096
"""From here on it pays to decode buffers where they stand (`cut_texts`)."""
M = TypeVar("M", Request, Reply)
NOTHING_CUT: Mapping[str, memoryview] = {}
TOLD = attrgetter(*(name for name in Result.__struct_fields__ if name != "buffer"))
CHECK_BYTES = len(', "check": "00000000"')


class _Other(msgspec.Struct, tag_field="protocol", tag=-1):
    """No message has this version. Beside it in a union the tag of a message must be there and right."""


VERSIONED: Mapping[type, Any] = {Request: Request | _Other, Reply: Reply | _Other}


# --- requests ----------------------------------------------------------------------------------------------------


def encode_request(request: Request) -> bytes:
    """The request as JSON. The caller holds it against MAX_REQUEST_BYTES."""
    return msgspec.json.encode(request)


def request_json(request: Request) -> dict[str, Any]:
    """The request as JSON values."""
    document: dict[str, Any] = msgspec.json.decode(encode_request(request))
    return document


def parse_request(event: object) -> Request:
    """The request in a JSON object, or in its bytes. Raises ContractError, VersionError for another version."""
    request = _decoded(event, Request, "this worker image", "redeploy the image, or use the client that made it")
    return request


# --- replies -----------------------------------------------------------------------------------------------------


def reply_json(reply: Reply) -> dict[str, Any]:
    """The reply as JSON values, with its check."""
    document, buffers = _without_buffers(reply)
    light = decode(msgspec.json.encode(document), Reply, "reply")  # numbers as the other side will have them
    for result, buffer in zip(document["results"], buffers, strict=True):
        if buffer is not None:
            result["buffer"] = to_base64(buffer)
    document["check"] = _check(light)
    return document


def _without_buffers(reply: Reply) -> tuple[dict[str, Any], list[bytearray | None]]:
    """The reply as JSON values with empty buffers, and the buffers."""
    document: dict[str, Any] = msgspec.to_builtins(reply, builtin_types=(bytes, bytearray))
    for result in document["results"]:
        if "buffer" in result:
            result["buffer"] = ""
    return document, [result.buffer for result in reply.results]


def _check(reply: Reply) -> str:
    """`Reply.check`."""
    told = [TOLD(result) for result in reply.results]
    return f"{checksum(msgspec.json.encode((told, reply.timing, reply.cpu))):08x}"


def parse_reply(body: object) -> Reply:
    """The reply in its bytes, or in a JSON object. Raises ContractError, VersionError for another version.

    Result buffers are decoded from base64 but not looked into: that is `decode_result`, result by result. Everything
    else is held against `Reply.check`, which is None afterwards.
    """
    texts: Mapping[str, memoryview] = NOTHING_CUT
    if isinstance(body, bytes | bytearray) and len(body) > LONG_REPLY_BYTES:
        body, texts = cut_texts(body, "buffer")
    reply = _decoded(body, Reply, "this client", "redeploy the worker image")
    for index, result in enumerate(reply.results):
        if result.buffer is not None:
            _fill(result, texts, f"reply.results[{index}]")
    if reply.check is not None:
        if reply.check != _check(reply):
            raise ContractError("reply.check: does not match, the reply was damaged on the way")
        msgspec.structs.force_setattr(reply, "check", None)
    return reply


def _fill(result: Result, texts: Mapping[str, memoryview], where: str) -> None:
    """Puts the buffer in the place of its mark, if it was cut out, and checks its size."""
    assert result.buffer is not None
    if texts:
        mark = to_base64(result.buffer)
        if mark not in texts:
            raise ContractError(f"{where}.buffer: the name is written with escapes, which no worker does")
        msgspec.structs.force_setattr(result, "buffer", from_base64(texts[mark], f"{where}.buffer"))
    if len(result.buffer) != result.size:
        raise ContractError(f"{where}.size: {result.size} bytes announced, {len(result.buffer)} came")


def encoded_size(reply: Reply) -> int:
    """The bytes of the reply's JSON as a Lambda runtime writes it (with ", " and ": ", non-ASCII escaped), or more.

    Buffers are counted, not encoded, so that this costs nothing even for megabytes.
    """
    document, buffers = _without_buffers(reply)
    encoded = sum(base64_size(len(buffer)) for buffer in buffers if buffer is not None)
    return len(json.dumps(document)) + CHECK_BYTES + encoded


def fits_inline(reply: Reply, max_inline: int = MAX_REPLY_BYTES) -> bool:
    """Whether AWS, and the request, take the whole reply as it is."""
    return encoded_size(reply) <= min(max_inline, MAX_REPLY_BYTES)


# --- both --------------------------------------------------------------------------------------------------------


def _decoded(message: object, kind: type[M], reader: str, remedy: str) -> M:
    where = kind.__name__.lower()
    try:
        decoded: M | _Other = decode(message, VERSIONED[kind], where)
    except ContractError:
        _check_version(message, where, reader, remedy)
        raise
    if isinstance(decoded, _Other):
        raise VersionError(f"{reader} speaks contract version {PROTOCOL}, the {where} came in version -1: {remedy}")
    return decoded


def _check_version(message: object, where: str, reader: str, remedy: str) -> None:
    """Raises VersionError when what is wrong with the message is that it came in another version."""
    fields = message if isinstance(message, dict) else decode(message, object, where)
    theirs = fields.get("protocol") if isinstance(fields, dict) else None
    if type(theirs) is int and theirs != PROTOCOL:
        raise VersionError(
            f"{reader} speaks contract version {PROTOCOL}, the {where} came in version {theirs}: {remedy}"
        )
