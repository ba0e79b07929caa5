"""Plain reads and writes of objects, straight from and to moto's memory.

Through moto's web stack each costs 2 ms and several copies of the object, and a range costs as much as the whole. Only
requests whose every header is understood here are answered here; all others are moto's, and so are all errors.
Knows nothing of sockets. Used by `s3.py`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from email.message import Message
from urllib.parse import unquote

from moto.s3.models import FakeKey, S3Backend, s3_backends

from gradmux.infra.local.names import ACCOUNT

OBJECT_PATH = re.compile(r"/([a-z0-9][a-z0-9.-]+)/([^?]+)")
MD5_BYTES = 1_000_000
RANGE = re.compile(r"bytes=(\d+)-(\d*)")

IGNORABLE = frozenset(
    {
        "host",
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "user-agent",
        "authorization",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-content-sha256",
        "x-amz-user-agent",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
    }
)
READ_HEADERS = IGNORABLE | {"range"}
WRITE_HEADERS = IGNORABLE | {"content-type"}


@dataclass(frozen=True, slots=True)
class ObjectAnswer:
    """An answer that needs no moto."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


def read_object(path: str, headers: Message) -> ObjectAnswer | None:
    """The answer to a GET of an object or of a range of it; None when moto has to answer."""
    key = existing_key(path) if all(name.lower() in READ_HEADERS for name in headers) else None
    if key is None or key.storage_class != "STANDARD":
        return None
    answer = {**key.response_dict, **key.metadata, "Accept-Ranges": "bytes"}
    asked = headers.get("Range")
    if asked is None:
        return ObjectAnswer(200, answer, content(key, 0, key.size))
    found = RANGE.fullmatch(asked)
    if found is None or not int(found[1]) <= int(found[2] or key.size) or int(found[1]) >= key.size:
        return None
    start, end = int(found[1]), min(int(found[2] or key.size), key.size - 1)
    answer["content-range"] = f"bytes {start}-{end}/{key.size}"
    answer["content-length"] = str(end + 1 - start)
    return ObjectAnswer(206, answer, content(key, start, end + 1))


def may_write(path: str, headers: Message) -> bool:
    """Whether a PUT is one that `write_object` understands: an object, sent whole, without conditions or options."""
    return (
        OBJECT_PATH.fullmatch(path) is not None
        and all(name.lower() in WRITE_HEADERS for name in headers)
        and "Content-Length" in headers
        and not headers.get("x-amz-content-sha256", "").startswith("STREAMING")
    )


def write_object(path: str, headers: Message, body: bytes) -> ObjectAnswer | None:
    """Stores an object for which `may_write` holds; None when the bucket is not there."""
    found = OBJECT_PATH.fullmatch(path)
    store = backend()
    if found is None or found[1] not in store.buckets:
        return None
    bucket, name = found[1], unquote(found[2])
    key = store.put_object(bucket, name, body, etag=entity_tag(body))
    if "Content-Type" in headers:
        key.set_metadata({"Content-Type": headers["Content-Type"]})
    key.set_acl(store.buckets[bucket].acl)
    return ObjectAnswer(200, {**key.response_dict, "content-length": "0"})


def entity_tag(body: bytes) -> str:
    """MD5, as S3's; for a large body something faster, in the form that S3 gives objects uploaded in parts."""
    if len(body) <= MD5_BYTES:
        return hashlib.md5(body, usedforsecurity=False).hexdigest()
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()[:32] + "-1"


def backend() -> S3Backend:
    """All buckets; the emulator has one account."""
    found: S3Backend = s3_backends[ACCOUNT]["aws"]
    return found


def existing_key(path: str) -> FakeKey | None:
    """The object that a path without query names."""
    found = OBJECT_PATH.fullmatch(path)
    store = backend()
    if found is None or found[1] not in store.buckets:
        return None
    key: FakeKey | None = store.get_object(found[1], unquote(found[2]))
    return key


def content(key: FakeKey, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (exclusive), without a copy of the others. moto itself only ever reads all of them."""
    with key.lock:
        key._value_buffer.seek(start)
        piece: bytes = key._value_buffer.read(end - start)
    return piece
