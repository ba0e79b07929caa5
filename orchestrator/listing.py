"""The keys under a prefix of a bucket that others fill: whatever their names are, one of them hides none of the rest.

obstore, which reads objects, knows no keys with empty parts or parts that are "." or ".."; S3 does, and lists them.
Hence boto3 lists here. Knows nothing of what the objects are. Used by `store.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

log = logging.getLogger(__name__)

UNREADABLE = ("", ".", "..")
"""parts of a key that name no object for most of S3's clients"""


def children(client: Any, bucket: str, folder: str) -> list[str]:
    """The keys of `folder` (empty, or ending in a slash) itself, sorted; the log names those that cannot be read.

    `client`: boto3's of S3. Raises what that raises.
    """
    return sorted(key for key in _listed(client, bucket, folder) if is_readable(key, f"s3://{bucket}/{folder}"))


def is_readable(key: str, where: str) -> bool:
    """Whether the key names an object that can be read; else the log says why not."""
    if key.endswith("/"):  # a folder's own marker
        return False
    odd = any(part in UNREADABLE for part in key.split("/"))
    if odd:
        _tell_odd(key, where)
    return not odd


def _tell_odd(key: str, where: str) -> None:
    log.warning("%s: left out %r: its key has an empty part, or one that is . or ..: rename it", where, key)


def _listed(client: Any, bucket: str, folder: str) -> Iterator[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder, Delimiter="/")
    for page in pages:
        yield from (found["Key"] for found in page.get("Contents", ()))
        for found in page.get("CommonPrefixes", ()):
            if found["Prefix"].removeprefix(folder).removesuffix("/") in UNREADABLE:
                _tell_odd(found["Prefix"], f"s3://{bucket}/{folder}")
