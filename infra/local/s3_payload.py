"""Is a body what its signature says? S3's ways to sign one: its hash, nothing at all, or chunk after chunk.

Pure. Used by `s3_door.py`.
Source: "Signature calculations for the Authorization header: transferring payload in multiple
chunks", AWS documentation.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256

from gradmux.infra.local.sigv4 import ALGORITHM, EMPTY, UNSIGNED, Signed

CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
CHUNKS_AND_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
"""the length of each chunk without a signature, then a checksum that moto looks at"""
NOT_HASHES = (UNSIGNED, CHUNKS, CHUNKS_AND_TRAILER, UNSIGNED_CHUNKS)


def is_promise(payload: str) -> bool:
    """Whether an x-amz-content-sha256 is one that S3 knows."""
    return payload in NOT_HASHES or (len(payload) == 64 and not set(payload) - set("0123456789abcdef"))


def keeps_promise(payload: str, body: bytes, signed: Signed) -> bool:
    """Whether the body is what `payload` (x-amz-content-sha256), which was signed, says."""
    if payload in (UNSIGNED, UNSIGNED_CHUNKS):
        return True
    if payload in (CHUNKS, CHUNKS_AND_TRAILER):
        return chunks_are_signed(body, signed, trailer=payload == CHUNKS_AND_TRAILER)
    return hmac.compare_digest(sha256(body).hexdigest(), payload)


def chunks_are_signed(body: bytes, signed: Signed, *, trailer: bool) -> bool:
    """Whether every chunk carries a signature that goes on from the one before, the last and empty one included."""
    before = signed.signature
    try:
        for data, signature in _chunks(body):
            expected = _signature(signed, f"{ALGORITHM}-PAYLOAD", before, f"{EMPTY}\n{sha256(data).hexdigest()}")
            if not hmac.compare_digest(expected, signature):
                return False
            before, last = signature, data
        return not last and (not trailer or _trailer_is_signed(body, before, signed))
    except (ValueError, UnboundLocalError):
        return False


def _chunks(body: bytes) -> Iterator[tuple[bytes, str]]:
    """(data, signature) of each chunk, up to the empty one. Raises ValueError for a body that is cut off."""
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size, _, extension = body[at:end].partition(b";")
        length = int(size, 16)
        data = body[end + 2 : end + 2 + length]
        if length < 0 or len(data) < length or not extension.startswith(b"chunk-signature="):
            raise ValueError("a chunk is cut off")
        yield data, extension.removeprefix(b"chunk-signature=").decode()
        if not length:
            return
        at = end + 4 + length


def _trailer_is_signed(body: bytes, before: str, signed: Signed) -> bool:
    """The header lines after the last chunk, each with its newline, and their signature."""
    head, found, tail = body.rpartition(b"x-amz-trailer-signature:")
    if not found:
        return False
    block = head[head.rindex(b"0;chunk-signature=") :].split(b"\r\n")[1:]
    lines = b"".join(line.strip().replace(b": ", b":") + b"\n" for line in block if line.strip())
    expected = _signature(signed, f"{ALGORITHM}-TRAILER", before, sha256(lines).hexdigest())
    return hmac.compare_digest(expected, tail.split(b"\r\n")[0].strip().decode())


def _signature(signed: Signed, algorithm: str, before: str, hashes: str) -> str:
    text = f"{algorithm}\n{signed.stamp}\n{signed.scope}\n{before}\n{hashes}"
    return hmac.digest(signed.key, text.encode(), "sha256").hex()
