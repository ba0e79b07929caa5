"""S3's requests over obstore (Rust): what a run uses. Raises what obstore raises. Read next: `store.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import obstore
from obstore.store import S3Store as ObstoreS3

from gradmux.orchestrator.moving import moves
from gradmux.orchestrator.strangers import is_page, told_of

MULTIPART_BYTES = 64 << 20
PART_BYTES, PARTS = 5 << 20, 4
"""of a large object: what is copied of it at any instant"""
PIECE_BYTES = 1 << 20


class NotS3(Exception):
    """Somebody else has answered in S3's place. One line."""


class ObstoreRequests:
    """One bucket, or the part of it under the client's prefix."""

    def __init__(self, client: ObstoreS3) -> None:
        self._client = client

    def put(self, key: str, data: bytes | memoryview) -> None:
        multipart = len(data) > MULTIPART_BYTES
        obstore.put(self._client, key, data, use_multipart=multipart, chunk_size=PART_BYTES, max_concurrency=PARTS)

    def create(self, key: str, data: bytes) -> None:
        """Raises AlreadyExistsError."""
        obstore.put(self._client, key, data, mode="create", use_multipart=False)

    def view(self, key: str) -> memoryview:
        found = obstore.get(self._client, key)
        moves(found.meta["size"])
        content = memoryview(found.bytes())
        if found.meta["e_tag"] is None:  # S3 always names one
            kind = str(found.attributes.get("Content-Type", ""))
            _require_object({"content-type": kind} if kind else {}, content)
        return content

    def pieces(self, key: str) -> Iterator[memoryview]:
        """The object bit by bit, none of it kept; the request is made at once."""
        found = obstore.get(self._client, key).stream(min_chunk_size=PIECE_BYTES)
        return (memoryview(piece) for piece in found)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return obstore.get_range(self._client, key, start=start, end=end).to_bytes()

    def head(self, key: str) -> None:
        if obstore.head(self._client, key)["e_tag"] is None:
            self.view(key)  # the page, if it is one, says so

    def delete(self, keys: Sequence[str]) -> None:
        obstore.delete(self._client, keys)

    def list(self, prefix: str) -> Iterator[str]:
        """S3 knows strings, obstore whole path segments: list the folder, then compare strings."""
        folder, _, _ = prefix.rpartition("/")
        for page in obstore.list(self._client, folder or None):
            yield from (found["path"] for found in page if found["path"].startswith(prefix))


def _require_object(headers: Mapping[str, str], content: memoryview) -> None:
    """Raises NotS3 where the content is a web page that no object holds."""
    if is_page(headers, content):
        raise NotS3(told_of(200, headers, content, "S3's answer"))
