"""What travels between the orchestrator and a worker, version 1: requests and replies as JSON, their limits.

Both sides use this file, and need no other: `encode_request` and `parse_reply` are the orchestrator's, `parse_request`
and `reply_json` the worker's. Everything is checked on arrival; malformed input raises ContractError with one line
that says where. It does not import torch (only float16 results do, when they are coded), and knows neither models
nor S3. Read `messages.py` for the fields, `keys.py` for S3 key names,
`buffers.py` for the bytes of one result, then `handler.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from gradmux.lambda_worker.buffers import (
    DTYPES,
    FIXED_SUMS,
    NonFiniteResult,
    SumIndex,
    decode_result,
    encode_result,
    gradient_offset,
    result_size,
)
from gradmux.lambda_worker.fields import ContractError, Fields, VersionError, base64_size, cut_texts, to_base64
from gradmux.lambda_worker.keys import cancel_marker, cancelled_epoch, early_key, reply_key, result_key
from gradmux.lambda_worker.messages import (
    MAX_REPLY_BYTES,
    Chunk,
    Reduction,
    Reply,
    ReplyMode,
    Request,
    Result,
    Rows,
    Skip,
    Source,
    Task,
    Timing,
    Weights,
)

__all__ = [
    "DTYPES",
    "FIXED_SUMS",
    "MAX_EVENT_BYTES",
    "MAX_REPLY_BYTES",
    "MAX_REQUEST_BYTES",
    "PROTOCOL",
    "Chunk",
    "ContractError",
    "NonFiniteResult",
    "Reduction",
    "Reply",
    "ReplyMode",
    "Request",
    "Result",
    "Rows",
    "Skip",
    "Source",
    "SumIndex",
    "Task",
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
]

PROTOCOL = 1
MAX_REQUEST_BYTES = 6_291_456
"""AWS: the JSON of a synchronous request, at most."""
MAX_EVENT_BYTES = 1_048_576
"""AWS: the JSON of an Event invocation, at most."""

LONG_REPLY_BYTES = 4096
"""From here on it pays to decode buffers where they stand (`cut_texts`)."""

OPERATIONS = ("gradient", "warm", "reduce")
REPLY_MODES = ("auto", "inline", "s3")
STATUSES = ("ok", "skipped", "failed", "cancelled")


# --- requests ----------------------------------------------------------------------------------------------------


def encode_request(request: Request) -> bytes:
    """The request as JSON. The caller holds it against MAX_REQUEST_BYTES."""
    return orjson.dumps(request_json(request))


def request_json(request: Request) -> dict[str, Any]:
    """The request as JSON values, every field present."""
    return {
        "protocol": PROTOCOL,
        "op": request.op,
        "run": request.run,
        "epoch": request.epoch,
        "round": request.round,
        "worker": request.worker,
        "attempt": request.attempt,
        "load": request.load,
        "bucket": request.bucket,
        "cancel": request.cancel,
        "data": None if request.data is None else {"key": request.data},
        "reply": _fields_of(request.reply),
        "tasks": [_task_json(task) for task in request.tasks],
        "reduce": None if request.reduce is None else _reduction_json(request.reduce),
    }


def parse_request(event: object) -> Request:
    """The request in a JSON object, or in its bytes. Raises ContractError, VersionError for another version."""
    fields = Fields(_loaded(event, "request"), "request")
    _check_version(fields, "this worker image", "redeploy the image, or use the client that made it")
    request = Request(
        op=fields.choice("op", OPERATIONS),
        run=fields.text("run"),
        epoch=fields.integer("epoch"),
        round=fields.integer("round"),
        worker=fields.integer("worker"),
        attempt=fields.integer("attempt", minimum=1),
        load=fields.number("load", minimum=0.0),
        bucket=fields.text("bucket"),
        cancel=fields.text("cancel") if fields.has("cancel") else None,
        data=_parse_data(fields.child("data")) if fields.has("data") else None,
        reply=_parse_reply_mode(fields.child("reply")),
        tasks=tuple(_parse_task(child) for child in fields.children("tasks")),
        reduce=_parse_reduction(fields.child("reduce")) if fields.has("reduce") else None,
    )
    fields.done()
    _check_request(request)
    return request


def _check_request(request: Request) -> None:
    """What no field can say alone."""
    if (request.op == "reduce") != (request.reduce is not None):
        raise ContractError(f"request.reduce: must be given for op 'reduce' alone, the op is {request.op!r}")
    if request.tasks and request.data is None:
        raise ContractError("request.data: tasks need a data manifest")
    slots = [task.slot for task in request.tasks]
    if len(set(slots)) < len(slots):
        raise ContractError(f"request.tasks: slots must differ, got {slots}")


def _task_json(task: Task) -> dict[str, Any]:
    return {
        "slot": task.slot,
        "job": task.job,
        "message": task.message,
        "model": task.model,
        "weights": _weights_json(task.weights),
        "seed": task.seed,
        "chunks": [
            {"coefficient": chunk.coefficient, "seed": chunk.seed, "rows": _rows_json(chunk.rows)}
            for chunk in task.chunks
        ],
        "skip": task.skip and {"weights": _weights_json(task.skip.weights), "threshold": task.skip.threshold},
    }


def _parse_task(fields: Fields) -> Task:
    task = Task(
        slot=fields.integer("slot"),
        job=fields.integer("job"),
        message=fields.integer("message"),
        model=fields.text("model"),
        weights=_parse_weights(fields.child("weights")),
        seed=fields.integer("seed"),
        chunks=tuple(_parse_chunk(child) for child in fields.children("chunks")),
        skip=_parse_skip(fields.child("skip")) if fields.has("skip") else None,
    )
    fields.done()
    if not task.chunks:
        raise ContractError(f"{fields.where}.chunks: expected one chunk or more")
    return task


def _weights_json(weights: Weights) -> dict[str, str]:
    if weights.inline is not None:
        return {"inline": to_base64(weights.inline)}
    return {"key": weights.key or ""}


def _parse_weights(fields: Fields) -> Weights:
    if fields.has("inline"):
        weights = Weights(inline=bytes(fields.binary("inline")))
    else:
        weights = Weights(key=fields.text("key"))
    fields.done()
    return weights


def _rows_json(rows: Rows) -> dict[str, Any]:
    return {"lo": rows.lo, "hi": rows.hi} if rows.ids is None else {"ids": to_base64(rows.ids)}


def _parse_rows(fields: Fields) -> Rows:
    if fields.has("ids"):
        rows = Rows(ids=bytes(fields.binary("ids")))
        ragged = len(rows.ids or b"") % 4 != 0
    else:
        rows = Rows(lo=fields.integer("lo"), hi=fields.integer("hi"))
        ragged = False
    fields.done()
    if ragged or rows.count <= 0:
        raise ContractError(f"{fields.where}: expected lo < hi, or ids of one row or more, 4 bytes each")
    return rows


def _parse_chunk(fields: Fields) -> Chunk:
    chunk = Chunk(
        coefficient=fields.number("coefficient"),
        seed=fields.integer("seed"),
        rows=_parse_rows(fields.child("rows")),
    )
    fields.done()
    return chunk


def _parse_skip(fields: Fields) -> Skip:
    skip = Skip(_parse_weights(fields.child("weights")), fields.number("threshold", minimum=0.0))
    fields.done()
    return skip


def _parse_data(fields: Fields) -> str:
    key = fields.text("key")
    fields.done()
    return key


def _parse_reply_mode(fields: Fields) -> ReplyMode:
    mode = ReplyMode(
        mode=fields.choice("mode", REPLY_MODES),
        dtype=fields.choice("dtype", DTYPES),
        prefix=fields.text("prefix", empty=True),
        max_inline=fields.integer("max_inline"),
        early=fields.flag("early") if fields.has("early") else False,
        post=fields.flag("post") if fields.has("post") else False,
    )
    fields.done()
    if not mode.prefix and (mode.mode != "inline" or mode.early or mode.post):
        raise ContractError(f"{fields.where}.prefix: needed unless everything is answered inline")
    return mode


def _reduction_json(reduction: Reduction) -> dict[str, Any]:
    return _fields_of(reduction) | {"sources": [_fields_of(source) for source in reduction.sources]}


def _parse_reduction(fields: Fields) -> Reduction:
    reduction = Reduction(
        job=fields.integer("job"),
        sources=tuple(_parse_source(child) for child in fields.children("sources")),
        lo=fields.integer("lo"),
        hi=fields.integer("hi"),
        out=fields.text("out"),
        dtype=fields.choice("dtype", DTYPES),
    )
    fields.done()
    if not reduction.sources or reduction.lo >= reduction.hi:
        raise ContractError(f"{fields.where}: expected one source or more, and lo < hi")
    return reduction


def _parse_source(fields: Fields) -> Source:
    source = Source(
        key=fields.text("key"),
        weight=fields.number("weight"),
        offset=fields.integer("offset"),
        scale=fields.number("scale") if fields.has("scale") else 1.0,
    )
    fields.done()
    return source


# --- replies -----------------------------------------------------------------------------------------------------


def reply_json(reply: Reply) -> dict[str, Any]:
    """The reply as JSON values, every field present."""
    return {
        "protocol": PROTOCOL,
        "op": reply.op,
        "run": reply.run,
        "epoch": reply.epoch,
        "round": reply.round,
        "worker": reply.worker,
        "attempt": reply.attempt,
        "results": [_result_json(result) for result in reply.results],
        "timing": _fields_of(reply.timing),
        "cpu": reply.cpu,
    }


def parse_reply(body: object) -> Reply:
    """The reply in its bytes, or in a JSON object. Raises ContractError, VersionError for another version.

    Result buffers are decoded from base64 but not looked into: that is `decode_result`, result by result.
    """
    buffers: Mapping[str, memoryview] = {}
    if isinstance(body, bytes | bytearray) and len(body) > LONG_REPLY_BYTES:
        body, buffers = cut_texts(body, "buffer")
    fields = Fields(_loaded(body, "reply"), "reply")
    _check_version(fields, "this client", "redeploy the worker image")
    reply = Reply(
        op=fields.choice("op", OPERATIONS),
        run=fields.text("run"),
        epoch=fields.integer("epoch"),
        round=fields.integer("round"),
        worker=fields.integer("worker"),
        attempt=fields.integer("attempt", minimum=1),
        results=tuple(_parse_result(child, buffers) for child in fields.children("results")),
        timing=_parse_timing(fields.child("timing")),
        cpu=fields.text("cpu", empty=True),
    )
    fields.done()
    return reply


def encoded_size(reply: Reply) -> int:
    """The bytes of the reply's JSON as a Lambda runtime writes it (with ", " and ": ", non-ASCII escaped), or more.

    Buffers are counted, not encoded, so that this costs nothing even for megabytes.
    """
    bare = tuple(result if result.buffer is None else replace(result, buffer=b"") for result in reply.results)
    skeleton = json.dumps(reply_json(replace(reply, results=bare)))
    return len(skeleton) + sum(base64_size(len(result.buffer or b"")) for result in reply.results)


def fits_inline(reply: Reply, max_inline: int = MAX_REPLY_BYTES) -> bool:
    """Whether AWS, and the request, take the whole reply as it is."""
    return encoded_size(reply) <= min(max_inline, MAX_REPLY_BYTES)


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "slot": result.slot,
        "job": result.job,
        "message": result.message,
        "status": result.status,
        "error": result.error,
        "distance": result.distance,
        "buffer": None if result.buffer is None else to_base64(result.buffer),
        "key": result.key,
        "size": result.size,
        "offset": result.offset,
        "scale": result.scale,
        "sums": None if result.sums is None else list(result.sums),
    }


def _parse_result(fields: Fields, buffers: Mapping[str, memoryview]) -> Result:
    result = Result(
        slot=fields.integer("slot"),
        job=fields.integer("job"),
        message=fields.integer("message"),
        status=fields.choice("status", STATUSES),
        error=fields.text("error") if fields.has("error") else None,
        distance=fields.number("distance", minimum=0.0) if fields.has("distance") else None,
        buffer=fields.binary("buffer", buffers) if fields.has("buffer") else None,
        key=fields.text("key") if fields.has("key") else None,
        size=fields.integer("size"),
        offset=fields.integer("offset"),
        scale=fields.number("scale"),
        sums=fields.numbers("sums") if fields.has("sums") else None,
    )
    fields.done()
    _check_result(result, fields.where)
    return result


def _check_result(result: Result, where: str) -> None:
    """Each status has its evidence, and no other's."""
    answers = (result.buffer is not None) + (result.key is not None)
    if answers != (result.status == "ok"):
        raise ContractError(f"{where}: an ok result has either a buffer or a key, any other has none")
    if (result.error is not None) != (result.status == "failed"):
        raise ContractError(f"{where}.error: must be given for a failed result, and for no other")
    if result.status == "skipped" and result.distance is None:
        raise ContractError(f"{where}.distance: a skipped result must say how little its gradient moved")
    if result.buffer is not None and len(result.buffer) != result.size:
        raise ContractError(f"{where}.size: {result.size} bytes announced, {len(result.buffer)} came")


def _parse_timing(fields: Fields) -> Timing:
    timing = Timing(
        compute_s=fields.number("compute_s", minimum=0.0),
        read_s=fields.number("read_s", minimum=0.0),
        write_s=fields.number("write_s", minimum=0.0),
        cold=fields.flag("cold"),
    )
    fields.done()
    return timing


# --- both --------------------------------------------------------------------------------------------------------


def _fields_of(message: ReplyMode | Reduction | Source | Timing) -> dict[str, Any]:
    """Its fields as JSON values; `dataclasses.asdict` copies every one of them."""
    return {name: getattr(message, name) for name in message.__slots__}


def _loaded(message: object, where: str) -> object:
    """JSON values, from bytes when they are bytes."""
    if not isinstance(message, bytes | bytearray | memoryview | str):
        return message
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise ContractError(f"{where}: not JSON ({error})") from error


def _check_version(fields: Fields, reader: str, remedy: str) -> None:
    theirs = fields.integer("protocol")
    if theirs != PROTOCOL:
        raise VersionError(
            f"{reader} speaks contract version {PROTOCOL}, the {fields.where} came in version {theirs}: {remedy}"
        )
