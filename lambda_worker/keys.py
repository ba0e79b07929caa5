"""S3 key names that a worker writes, all under the request's prefix, and the cancel marker that it reads.

Every key carries the epoch and the attempt, so that answers to a former life of the run overwrite nothing.
Knows no S3. Both sides import these from `contract.py`.
"""

from __future__ import annotations

import hashlib

from gradmux.lambda_worker.codec import ContractError
from gradmux.lambda_worker.messages import Request

MAX_EPOCH_DIGITS = 18


def result_key(request: Request, slot: int) -> str:
    """The S3 key of one spilled result. Two executions of one attempt write the same bytes there."""
    return f"{_stem(request)}/{slot}"


def state_key(request: Request, slot: int, content: bytes | bytearray) -> str:
    """The S3 key of the state that a stretch ends with: it names its content, so that the next one can name it."""
    return f"{_stem(request)}/{slot}-{hashlib.sha256(content).hexdigest()}"


def kept_key(request: Request, slot: int, step: int, content: bytes) -> str:
    """The S3 key of the snapshot after a step of a stretch."""
    return f"{_stem(request)}/{slot}-step{step}-{hashlib.sha256(content).hexdigest()}"


def early_key(request: Request, message: int) -> str:
    """The S3 key of the early reply (JSON, `parse_reply`) that holds the results of this message alone."""
    return f"{_stem(request)}/early-{message}"


def reply_key(request: Request) -> str:
    """The S3 key of the whole reply (JSON, `parse_reply`), when `reply.post` asks for it."""
    return f"{_stem(request)}/reply"


def cancel_marker(epoch: int) -> bytes:
    """The content of the cancel marker: every invocation of this epoch or an earlier one is not to compute."""
    return str(epoch).encode()


def cancelled_epoch(marker: bytes) -> int:
    """The epoch in a cancel marker. Raises ContractError when it holds none."""
    if not marker.isdigit() or len(marker) > MAX_EPOCH_DIGITS:
        raise ContractError(f"cancel marker: expected an epoch in decimal digits, got {len(marker)} other bytes")
    return int(marker)


def stem(prefix: str, epoch: int, round: int, worker: int, attempt: int) -> str:
    """How every key begins that this invocation writes."""
    return f"{prefix}{epoch}-{round}-{worker}-{attempt}"


def _stem(request: Request) -> str:
    return stem(request.reply.prefix, request.epoch, request.round, request.worker, request.attempt)
