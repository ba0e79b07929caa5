"""Content is what its key says: keys of specs, manifests, snapshots and arrays end in the SHA-256 of their content.

A request names keys and is signed, so whoever can write into the bucket but sign no request changes nothing that a
worker would run or compute with. Knows no store. Used by `sandbox.py` and `data.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator

from gradmux.lambda_worker.objects import StoreError

__all__ = ["DigestError", "checked", "checked_pieces"]

NAMED = re.compile(r"(?:.*[/-])?([0-9a-f]{64})(?:\.json)?", re.DOTALL)


class DigestError(StoreError):
    """An object that is not what the request asked for: somebody has changed it, or its key names no content."""


def checked(key: str, content: bytes) -> bytes:
    """The content, when it hashes to the digest in its key. Raises DigestError."""
    _require(key, hashlib.sha256(content).hexdigest(), digest_of(key))
    return content


def checked_pieces(key: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same, piece by piece: raises DigestError in place of an end. A key without a digest promises nothing."""
    if NAMED.fullmatch(key) is None:
        yield from pieces
        return
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
        yield piece
    _require(key, hashed.hexdigest(), digest_of(key))


def digest_of(key: str) -> str:
    """The SHA-256, in hexadecimal, that a key ends in. Raises DigestError when it names none."""
    found = NAMED.fullmatch(key)
    if found is None:
        raise DigestError(f"object {key!r}: the key does not end in the SHA-256 of its content, as the contract asks")
    return found[1]


def _require(key: str, found: str, expected: str) -> None:
    if not hmac.compare_digest(found, expected):
        raise DigestError(f"object {key!r}: its content has SHA-256 {found}, not what its key names: it was changed")
