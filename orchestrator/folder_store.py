"""A store that is a folder on a disk which client and workers share: for backends without S3.

`FolderStore` is the client's side, `FolderObjects` the worker's. Objects are files, written whole or not at all;
folders that become empty go. Read next: `store.py`, `lambda_worker/objects.py`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gradmux.lambda_worker.objects import MissingObject, StoreError
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.store import StoreUnavailable

UNFINISHED = ".part-"
TRIES = 100
"""A folder may be removed, being empty, between its making and the file's."""

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""How the system says that no object has a key: none, one has a part of it, or others begin with it."""


class FolderStore:
    """`ports.StoreClient` over a folder. Safe to share between threads and processes."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises: PreflightError."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PreflightError(f"no store can be kept in {folder}: {error.strerror or error}") from error

    @property
    def where(self) -> str:
        return f"the folder {self._folder}"

    def put(self, key: str, data: bytes) -> None:
        self._write(key, data, os.replace)

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._write(key, data, os.link)
        except FileExistsError:
            if not self.exists(key):
                raise StoreUnavailable(f"{self._path(key)}: a folder is in the way: move it away") from None
            return False
        return True

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except ABSENT:
            raise FileNotFoundError(f"no object {key} in {self._folder}") from None
        except OSError as error:
            raise StoreUnavailable(f"{self._folder}: {error.strerror or error}") from error

    def view(self, key: str) -> memoryview:
        return memoryview(self.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read(max(0, end - start))
        except ABSENT:
            raise FileNotFoundError(f"no object {key} in {self._folder}") from None
        except OSError as error:
            raise StoreUnavailable(f"{self._folder}: {error.strerror or error}") from error

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                path.unlink()
            except ABSENT:
                continue
            except OSError as error:
                raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
            with suppress(OSError):  # not empty
                for parent in path.parents:
                    if parent == self._folder:
                        break
                    parent.rmdir()

    def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self._keys(self._folder / prefix.rpartition("/")[0]) if key.startswith(prefix))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for key, data in objects.items():
            self.put(key, data)

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        return [self.view(key) for key in keys]

    def close(self) -> None:
        """Nothing to free."""

    def _path(self, key: str) -> Path:
        assert not key.startswith("/"), key
        assert ".." not in key.split("/"), key
        return self._folder / key

    def _keys(self, folder: Path) -> Iterator[str]:
        for root, _, files in os.walk(folder):
            below = Path(root).relative_to(self._folder)
            yield from (str(below / name) for name in files if not name.startswith(UNFINISHED))

    def _write(self, key: str, data: bytes, name: Callable[[Path, Path], None]) -> None:
        """Writes beside the object, then gives it its name by `name`: os.replace, or os.link where it must be new."""
        path = self._path(key)
        part = path.with_name(f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(6)}")
        try:
            for left in reversed(range(TRIES)):
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    part.write_bytes(data)
                    break
                except (FileNotFoundError, FileExistsError) as error:  # of the folder, which came or went meanwhile
                    if path.parent.is_file():
                        raise StoreUnavailable(f"{path.parent}: a file is in the way: move it away") from error
                    if not left:
                        raise StoreUnavailable(f"{path.parent}: the folder comes and goes") from error
            name(part, path)
        except FileExistsError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror or error}") from error
        finally:
            with suppress(NotADirectoryError):
                part.unlink(missing_ok=True)


class FolderObjects:
    """`lambda_worker.objects.ObjectStore` over the same folder, for its workers."""

    def __init__(self, folder: Path) -> None:
        self._store = FolderStore(folder)

    def get(self, key: str) -> bytes:
        try:
            return self._store.get(key)
        except FileNotFoundError as error:
            raise MissingObject(f"object {key!r} does not exist") from error
        except StoreUnavailable as error:
            raise StoreError(str(error)) from error

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        try:
            body = self._store.get_range(key, lo, hi)
        except FileNotFoundError as error:
            raise MissingObject(f"object {key!r} does not exist") from error
        except StoreUnavailable as error:
            raise StoreError(str(error)) from error
        if len(body) != hi - lo:
            raise StoreError(f"object {key!r}: has no bytes {lo} to {hi}")
        return body

    def put(self, key: str, body: bytes) -> None:
        try:
            self._store.put(key, body)
        except StoreUnavailable as error:
            raise StoreError(str(error)) from error
