"""A zip file as a stream of pieces: so that it is written through a `Disk`, and never twice in memory.

Uncompressed; every member has its CRC-32. Knows nothing of what is in it. Read next: `checkpoints.py`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from zlib import error as ZlibError

UNREADABLE = (zipfile.BadZipFile, ZlibError, OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError)
"""What reading a damaged zip may raise."""
PIECE_BYTES = 1 << 20


def zipped(members: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """The zip file, some megabytes at a time, so that nothing of a large member is in memory once more."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.file_size = len(data)
            with archive.open(info, "w") as member:
                for lo in range(0, len(data), PIECE_BYTES):
                    member.write(memoryview(data)[lo : lo + PIECE_BYTES])
                    yield sink.take()
            yield sink.take()
    yield sink.take()


class _Sink:
    """What `ZipFile` writes to."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing waits."""

    def take(self) -> bytes:
        """What was written since."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
