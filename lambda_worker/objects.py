"""The door to object storage: three calls, their two errors, and an implementation in memory.

`s3.py` implements it over boto3. Nothing else of the worker knows where objects live.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["MemoryObjects", "MissingObject", "ObjectStore", "ShortObject", "StoreError"]


class StoreError(Exception):
    """Storage failed for good: retries are used up, or access is denied. The text names the object."""


class MissingObject(StoreError):
    """There is no such object."""


class ShortObject(MissingObject):
    """The object ends before the bytes that were asked for."""


class ObjectStore(Protocol):
    """Objects of one bucket. Thread-safe."""

    def get(self, key: str) -> bytes:
        """The whole object. Raises MissingObject, StoreError."""
        ...

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        """Bytes [lo, hi) of the object, all of them. Raises MissingObject (ShortObject if too short), StoreError."""
        ...

    def put(self, key: str, body: bytes) -> None:
        """Creates or replaces the object as a whole. Raises StoreError."""
        ...


class MemoryObjects:
    """Objects in a dictionary: for tests, and for computing in this process what workers compute."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[tuple[str, int, int]] = []
        """Every read: key, lo, hi; in order."""

    def get(self, key: str) -> bytes:
        body = self._object(key)
        self.reads.append((key, 0, len(body)))
        return body

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        body = self._object(key)[lo:hi]
        self.reads.append((key, lo, hi))
        if len(body) != hi - lo:
            raise ShortObject(f"object {key!r}: has no bytes {lo} to {hi}")
        return body

    def put(self, key: str, body: bytes) -> None:
        self.objects[key] = bytes(body)

    def _object(self, key: str) -> bytes:
        if key not in self.objects:
            raise MissingObject(f"object {key!r} does not exist")
        return self.objects[key]
