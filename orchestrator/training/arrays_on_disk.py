"""Files of numpy's own -> blocks of rows: .npz archives and .npy files, whatever their order of bytes and of axes.

Row-major arrays are read in order, a few megabytes at a time, compressed or not; others (Fortran order) through a map
of the file. Knows neither inputs nor targets. Read `reading.py` next.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.dataset import BLOCK_BYTES, Array, Arrays

SUFFIX = ".npy"
COPIED_BYTES = 1 << 20
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
Open = Callable[[], IO[bytes]]


class ArrayFile:
    """One .npy file, or one member of an archive."""

    def __init__(self, open_file: Open, where: str) -> None:
        """Reads the header. Raises: ConfigError for arrays of Python objects, ValueError for what is no array."""
        self._open, self.where = open_file, where
        with open_file() as file:
            version = np.lib.format.read_magic(file)
            if version not in HEADERS:
                raise ConfigError(f"data {where}: is an array of records (format {version}); give plain arrays")
            self.shape, self._fortran, self.dtype = HEADERS[version](file)
            self._start = file.tell()
        if self.dtype.hasobject:
            raise ConfigError(f"data {where}: holds Python objects, which would run code when read: save numbers")
        if not self.shape:
            raise ConfigError(f"data {where}: is a single value; the first dimension counts the rows")

    @property
    def row_bytes(self) -> int:
        return int(self.dtype.itemsize * np.prod(self.shape[1:], dtype=np.int64))

    def blocks(self, rows: int) -> Iterator[Array]:
        """So many rows at a time. Raises: EOFError when the file is cut off."""
        with self._open() as file:
            if self._fortran and len(self.shape) > 1:
                yield from self._mapped(file, rows)
                return
            file.seek(self._start) if file.seekable() else file.read(self._start)
            for lo in range(0, self.shape[0], rows):
                count = min(rows, self.shape[0] - lo)
                body = bytearray(count * self.row_bytes)
                if _fill(file, body) != len(body):
                    raise EOFError("is cut off")
                yield np.frombuffer(body, self.dtype).reshape(count, *self.shape[1:])

    def _mapped(self, file: IO[bytes], rows: int) -> Iterator[Array]:
        with ExitStack() as stack:
            if getattr(file, "fileno", None) is None or isinstance(file, zipfile.ZipExtFile):
                file = _copied(file, stack.enter_context(TemporaryFile()))
            table = np.memmap(file, self.dtype, "r", self._start, self.shape, "F")
            for lo in range(0, self.shape[0], rows):
                yield np.array(table[lo : lo + rows], order="C")


class ArrayFiles:
    """Arrays under names, read side by side."""

    table = False
    index: tuple[str, ...] = ()

    def __init__(self, files: Mapping[str, ArrayFile]) -> None:
        self._files = files
        self.names = tuple(files)

    def blocks(self, names: Sequence[str]) -> Iterator[Arrays]:
        """Rows of these arrays. Raises: ConfigError when their numbers of rows differ."""
        files = {name: self._files[name] for name in names}
        lengths = {each.shape[0] for each in files.values()}
        if len(lengths) > 1:
            told = " and ".join(f"{name} {each.shape}" for name, each in files.items())
            where = next(iter(files.values())).where.partition(": ")[0]
            raise ConfigError(f"data {where}: {told} must have the same number of rows")
        if lengths == {0}:
            yield {name: np.zeros(each.shape, each.dtype) for name, each in files.items()}
            return
        rows = max(1, BLOCK_BYTES // max(1, sum(each.row_bytes for each in files.values())))
        streams = [each.blocks(rows) for each in files.values()]
        for parts in zip(*streams, strict=True):
            yield dict(zip(files, parts, strict=True))


def open_npz(path: Path, where: str) -> ArrayFiles:
    """The arrays of an archive. Raises: ConfigError, also for what Python cannot unpack."""
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(SUFFIX)]
        for info in members:
            _require_readable(info, where)
    names = [info.filename.removesuffix(SUFFIX) for info in members]
    return ArrayFiles({name: ArrayFile(_member(path, f"{name}{SUFFIX}"), f"{where}: {name}") for name in names})


def open_npy(files: Mapping[str, Path], shown: Mapping[str, str]) -> ArrayFiles:
    """Files under the names of what is in them."""
    return ArrayFiles({name: ArrayFile(_plain(path), shown[name]) for name, path in files.items()})


def _require_readable(info: zipfile.ZipInfo, where: str) -> None:
    if info.flag_bits & 1:
        raise ConfigError(f"data {where}: {info.filename} is encrypted; save it without a password")
    known = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
    if info.compress_type not in known:
        name = zipfile.compressor_names.get(info.compress_type, str(info.compress_type))  # type: ignore[attr-defined]
        raise ConfigError(
            f"data {where}: {info.filename} is compressed by {name}, which Python cannot unpack: "
            "save it with numpy.savez"
        )


def _plain(path: Path) -> Open:
    return lambda: path.open("rb")


def _member(path: Path, name: str) -> Open:
    def opened() -> IO[bytes]:
        with zipfile.ZipFile(path) as archive:
            return archive.open(name)  # keeps the file open by itself

    return opened


def _fill(file: IO[bytes], body: bytearray) -> int:
    view, done = memoryview(body), 0
    while done < len(body):
        got: Any = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            break
        done += got
    return done


def _copied(file: IO[bytes], copy: IO[bytes]) -> IO[bytes]:
    with suppress(OSError, AttributeError):
        file.seek(0)
    while piece := file.read(COPIED_BYTES):
        copy.write(piece)
    copy.flush()
    return copy
