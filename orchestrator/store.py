"""Where bytes are kept: `S3Store`, and `MemoryStore` for tests and simulation; and `Keys`, which makes every key name.

Knows nothing of what the bytes mean. A store implements `ports.Store`; a missing key is a FileNotFoundError, and
trouble that outlasts the client's own retries is `StoreUnavailable` (the run can be resumed). Read `fleets/` next.

The client is obstore (Rust): a small put or get costs a tenth of boto3's CPU time (`benchmarks/store.py`), threads wait
without the GIL, and it sends no checksum headers that S3-compatible stores refuse.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import urlsplit

import botocore.session
import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store as ObstoreS3

from gradmux.orchestrator.aws import Endpoint, authorities, find_credentials, new_session, resolve_endpoint
from gradmux.orchestrator.errors import ConfigError, PreflightError, RunStopped
from gradmux.orchestrator.listing import children
from gradmux.orchestrator.ports import Store

if TYPE_CHECKING:
    from obstore.store import ClientConfig

T = TypeVar("T")

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
CONCURRENCY = 32
"""Requests at a time of the `*_many` calls. More gained nothing against one server, and costs memory."""
MULTIPART_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class StoreUnavailable(RunStopped):
    """The store did not answer, or refused, for longer than the client retries."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Every key name of one run, and those that runs share.

    What runs share is named by its content's SHA-256, so it is uploaded once and never changes. A run's own keys start
    with its `prefix`, which is what is deleted when the run is. Results spread over 256 prefixes, because S3 limits the
    request rate by prefix.
    """

    run: str
    DATA_SHARDS: ClassVar[str] = "data/shards/"
    """before the digest of a shard"""

    def __post_init__(self) -> None:
        if not RUN_NAME.fullmatch(self.run):
            raise ConfigError(f"run name {self.run!r}: use letters, digits, '.', '_' and '-', at most 128")

    @property
    def prefix(self) -> str:
        return f"runs/{self.run}/"

    @property
    def cancel(self) -> str:
        """The marker that workers look for before they compute."""
        return f"{self.prefix}cancel"

    @property
    def results(self) -> str:
        """Everything that workers write lies under here."""
        return f"{self.prefix}results/"

    @property
    def snapshots(self) -> str:
        """All weights that workers start from lie under here."""
        return f"{self.prefix}weights/"

    def weights(self, epoch: int, model: int, step: int, content: bytes) -> str:
        """The snapshot that `step` of `model` starts from, in this life of the run: workers use nothing else."""
        return f"{self.snapshots}{epoch}/{model}/{step}-{digest(content)}"

    def spill(self, round: int, worker: int) -> str:
        """The prefix that the worker of one invocation puts its results under; the worker adds epoch and attempt."""
        shard = hashlib.blake2b(f"{round}/{worker}".encode(), digest_size=1).hexdigest()
        return f"{self.results}{shard}/"

    def mail(self, epoch: int, round: int) -> str:
        """The same, where the client looks for what the workers of a whole round put there."""
        shard = hashlib.blake2b(f"{epoch}/{round}".encode(), digest_size=1).hexdigest()
        return f"{self.results}{shard}/{epoch}-{round}/"

    def reduced(self, epoch: int, job: int, part: int) -> str:
        """One slice of a job's gradient, summed by a worker."""
        return f"{self.results}sums/{epoch}/{job}/{part}"

    def life_of(self, key: str) -> int:
        """The epoch that a snapshot, a worker's result or a sum belongs to."""
        parts = key.removeprefix(self.prefix).split("/")
        return int(parts[1 if key.startswith(self.snapshots) else 2].partition("-")[0])

    def checkpoint(self, name: str) -> str:
        return f"{self.prefix}checkpoints/{name}"

    def folder(self, name: str) -> str:
        """A file of the run's folder, kept here too."""
        return f"{self.prefix}folder/{name}"

    @staticmethod
    def model_spec(content: bytes) -> str:
        return f"specs/{digest(content)}.json"

    @staticmethod
    def data_manifest(content: bytes) -> str:
        return f"data/manifests/{digest(content)}.json"


def digest(content: bytes | memoryview) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def put_once(store: Store, key: str, data: bytes) -> str:
    """Puts content under the key that its digest named, unless it is there already. Returns the key."""
    if not store.exists(key):
        store.put(key, data)
    return key


class MemoryStore:
    """A store in this process's memory."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes | memoryview) -> None:
        with self._lock:
            self._objects[key] = bytes(data)

    def create(self, key: str, data: bytes) -> bool:
        """Puts an object that is not there yet; False when it is."""
        with self._lock:
            free = key not in self._objects
            self._objects.setdefault(key, bytes(data))
        return free

    def get(self, key: str) -> bytes:
        try:
            return self._objects[key]
        except KeyError:
            raise FileNotFoundError(f"no object {key}") from None

    def view(self, key: str) -> memoryview:
        return memoryview(self.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.get(key)[start:end]

    def exists(self, key: str) -> bool:
        return key in self._objects

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._objects.pop(key, None)

    def list(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def pieces(self, key: str) -> Iterable[bytes | memoryview]:
        return [self.get(key)]

    def children(self, folder: str) -> Sequence[str]:
        return [key for key in self.list(folder) if "/" not in key.removeprefix(folder)]

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for key, data in objects.items():
            self.put(key, data)

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        return [self.view(key) for key in keys]

    def close(self) -> None:
        """Nothing to free."""


class S3Store:
    """A bucket, or the part of it under `prefix`. Safe to share between threads; close it when done."""

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint_url: str | None = None,
        session: botocore.session.Session | None = None,
        patience_s: float = 180.0,
    ) -> None:
        """Opens no connection yet.

        `endpoint_url` None: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile, or AWS itself. `patience_s` bounds the
        client's retries of 5xx (SlowDown too), refused connections and timeouts.
        Raises: PreflightError without region or credentials.
        """
        session = session or new_session()
        self.endpoint = resolve_endpoint(session, "s3", endpoint_url)
        self.bucket, self._session = bucket, session
        find_credentials(session)
        self._client = ObstoreS3(
            bucket,
            prefix=prefix or None,
            region=self.endpoint.region,
            # Not `endpoint`: AWS_ENDPOINT_URL_S3 in the environment would go before it.
            aws_endpoint_url_s3=self.endpoint.url if self.endpoint.custom else None,
            virtual_hosted_style_request=not self.endpoint.custom,
            credential_provider=Boto3CredentialProvider(session, ttl=timedelta(minutes=5)),
            client_options=_client_options(self.endpoint, session),
            retry_config={"max_retries": 20, "retry_timeout": timedelta(seconds=patience_s)},
        )
        self._threads = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="store")

    def put(self, key: str, data: bytes | memoryview) -> None:
        multipart = len(data) > MULTIPART_BYTES
        self._ask(key, lambda: obstore.put(self._client, key, data, use_multipart=multipart, chunk_size=16 << 20))

    def create(self, key: str, data: bytes) -> bool:
        """Puts an object that is not there yet; False when it is. Of two clients at once, one gets True."""
        try:
            self._ask(key, lambda: obstore.put(self._client, key, data, mode="create", use_multipart=False))
        except FileExistsError:
            return False
        return True

    def get(self, key: str) -> bytes:
        return self.view(key).tobytes()

    def view(self, key: str) -> memoryview:
        """The object where obstore has put it: a copy into Python's own memory takes longer than all the rest."""
        return self._ask(key, lambda: memoryview(obstore.get(self._client, key).bytes()))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        return self._ask(key, lambda: obstore.get_range(self._client, key, start=start, end=end).to_bytes())

    def exists(self, key: str) -> bool:
        try:
            self._ask(key, lambda: obstore.head(self._client, key))
        except FileNotFoundError:
            return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes by thousands; keys that are not there are no error."""
        names = list(keys)
        if names:
            self._ask(names[0], lambda: obstore.delete(self._client, names))

    def list(self, prefix: str) -> list[str]:
        return self._ask(prefix, lambda: sorted(self._listed(prefix)))

    def pieces(self, key: str) -> Iterable[bytes | memoryview]:
        found = self._ask(key, lambda: obstore.get(self._client, key))
        for piece in found.stream(min_chunk_size=PIECE_BYTES):
            yield memoryview(piece)

    def children(self, folder: str) -> Sequence[str]:
        return children(self._session, self.endpoint, self.bucket, folder)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Puts them `CONCURRENCY` at a time."""
        list(self._threads.map(self.put, objects.keys(), objects.values()))

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        """Their contents, in this order, fetched `CONCURRENCY` at a time."""
        return list(self._threads.map(self.view, keys))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _listed(self, prefix: str) -> Iterable[str]:
        """S3 knows strings, obstore whole path segments: list the folder, then compare strings."""
        folder, _, _ = prefix.rpartition("/")
        for page in obstore.list(self._client, folder or None):
            yield from (found["path"] for found in page if found["path"].startswith(prefix))

    def _ask(self, key: str, request: Callable[[], T]) -> T:
        """Runs one request; the errors of obstore become ours."""
        try:
            return request()
        except FileNotFoundError as error:
            self._require_bucket(error)
            raise FileNotFoundError(f"no object {key} in bucket {self.bucket}") from error
        except AlreadyExistsError as error:
            raise FileExistsError(f"there is an object {key} in bucket {self.bucket} already") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PreflightError(f"bucket {self.bucket}: access to {key} refused: {_first_line(error)}") from error
        except BaseError as error:
            self._require_bucket(error)
            raise StoreUnavailable(f"bucket {self.bucket} at {self.endpoint.url}: {_first_line(error)}") from error

    def _require_bucket(self, error: Exception) -> None:
        if "NoSuchBucket" in str(error):
            raise PreflightError(f"there is no bucket {self.bucket} at {self.endpoint.url}") from error


def open_bucket(bucket: str) -> S3Store:
    """A bucket of the user's own, with the user's own credentials."""
    return S3Store(bucket)


def _client_options(endpoint: Endpoint, session: botocore.session.Session) -> ClientConfig:
    """A store on this machine is reached past every proxy of the environment, and nothing else is reached at all."""
    plain = endpoint.url.startswith("http://")
    options: ClientConfig = {"allow_http": plain, "timeout": timedelta(minutes=10)}
    named = None if plain else authorities(session)
    if named is not None:  # beside the usual ones
        options["root_certificate"] = Path(named).read_bytes()
    if urlsplit(endpoint.url).hostname in LOOPBACK:
        options.update({"proxy_url": "http://127.0.0.1:9", "proxy_excludes": ",".join(LOOPBACK)})
    return options


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
