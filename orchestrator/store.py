"""Where bytes are kept: `S3Store`, and `MemoryStore` for tests and simulation; and `Keys`, which makes every key name.

Knows nothing of what the bytes mean. A store implements `ports.Store`; a missing key is a FileNotFoundError, and
trouble that outlasts the client's own retries is `StoreUnavailable` (the run can be resumed). Read `fleets/` next.

The client is obstore (Rust): a small put or get costs a tenth of boto3's CPU time (`benchmarks/store.py`), threads wait
without the GIL, and it sends no checksum headers that S3-compatible stores refuse.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import ClassVar, TypeVar

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from gradmux.orchestrator.aws import CredentialTrouble, find_credentials, new_session, resolve_endpoint
from gradmux.orchestrator.clock import DATE_REFUSALS, Clock
from gradmux.orchestrator.daemons import DaemonThreads
from gradmux.orchestrator.errors import ConfigError, PreflightError, RunStopped
from gradmux.orchestrator.listing import children
from gradmux.orchestrator.ports import Store
from gradmux.orchestrator.s3 import settings
from gradmux.orchestrator.s3.by_botocore import ATTEMPTS, BotocoreS3, cause_of
from gradmux.orchestrator.s3.by_obstore import NotS3, ObstoreRequests
from gradmux.orchestrator.s3.cause import Cause
from gradmux.orchestrator.s3.conditions import Conditions
from gradmux.orchestrator.strangers import page_told

log = logging.getLogger(__name__)

T = TypeVar("T")

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
CONCURRENCY = 32
"""Requests at a time of the `*_many` calls. More gained nothing against one server, and costs memory."""
UNHEARD = re.compile(r"(?i)error sending request|timed out|dns error|error trying to connect|connection (?:re|clo)")
"""In the text of an error: nothing has answered. Otherwise S3 may be asked why."""
PASSING = frozenset(
    {"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "OperationAborted", "503 Slow Down"}
)
PROVIDER = "External AWS credential provider: "


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

    def weights(self, epoch: int, model: int, step: int, content: bytes | memoryview) -> str:
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

    def done(self, epoch: int, job: int) -> str:
        """The marker that a job of several steps has its answer, which other copies of it look for."""
        return f"{self.results}done/{epoch}-{job}"

    def reduced(self, epoch: int, job: int, part: int, attempt: int) -> str:
        """One slice of a job's gradient, summed by a worker in this attempt."""
        return f"{self.results}sums/{epoch}/{job}/{part}-{attempt}"

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

    where = "the store in this process's memory"

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

    def sizes(self, prefix: str, most: int) -> Mapping[str, int]:
        return {key: len(self._objects[key]) for key in self.list(prefix)[:most]}

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
        self._session = session or new_session()
        self.endpoint = resolve_endpoint(self._session, "s3", endpoint_url)
        self.bucket, self._prefix = bucket, prefix
        find_credentials(self._session)
        self._clock = Clock()
        self._requests: ObstoreRequests | BotocoreS3 = ObstoreRequests(
            settings.client(
                bucket,
                self.endpoint,
                self._session,
                prefix=prefix or None,
                credential_provider=Boto3CredentialProvider(self._session, ttl=timedelta(minutes=5)),
                retry_config={"max_retries": 20, "retry_timeout": timedelta(seconds=patience_s)},
            )
        )
        self._conditions = Conditions(self.endpoint)
        self._threads = DaemonThreads(CONCURRENCY, "store")

    @property
    def where(self) -> str:
        return f"bucket {self.bucket} at {self.endpoint.url}"

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._ask(key, lambda requests: requests.put(key, data))

    def create(self, key: str, data: bytes) -> bool:
        """Puts an object that is not there yet; False when it is. Of two clients at once, one gets True.

        Raises: PreflightError where the store does not keep that promise.
        """
        self._conditions.require(self._created, self.delete, key, self.bucket)
        return self._created(key, data)

    def _created(self, key: str, data: bytes) -> bool:
        try:
            self._ask(key, lambda requests: requests.create(key, data))
        except FileExistsError:
            return False
        return True

    def get(self, key: str) -> bytes:
        return self.view(key).tobytes()

    def view(self, key: str) -> memoryview:
        """The object where obstore has put it: a copy into Python's own memory takes longer than all the rest."""
        return self._ask(key, lambda requests: requests.view(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        return self._ask(key, lambda requests: requests.get_range(key, start, end))

    def exists(self, key: str) -> bool:
        try:
            self._ask(key, lambda requests: requests.head(key))
        except FileNotFoundError:
            return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes by thousands; keys that are not there are no error."""
        names = list(keys)
        if names:
            self._ask(names[0], lambda requests: requests.delete(names))

    def list(self, prefix: str) -> list[str]:
        return self._ask(prefix, lambda requests: sorted(requests.list(prefix)))

    def pieces(self, key: str) -> Iterable[bytes | memoryview]:
        try:
            yield from self._ask(key, lambda requests: requests.pieces(key))
        except BaseError as error:  # in the middle of it
            raise self._told(key, error, None) from error

    def children(self, folder: str) -> Sequence[str]:
        return self._ask(folder, lambda _: children(self._by_botocore().client, self.bucket, folder))

    def sizes(self, prefix: str, most: int) -> Mapping[str, int]:
        return self._ask(prefix, lambda _: dict(islice(self._by_botocore().sizes(prefix), most)))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Puts them `CONCURRENCY` at a time."""
        list(self._threads.map(self.put, objects.keys(), objects.values()))

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        """Their contents, in this order, fetched `CONCURRENCY` at a time."""
        return list(self._threads.map(self.view, keys))

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _ask(self, key: str, request: Callable[[ObstoreRequests | BotocoreS3], T]) -> T:
        """Runs one request, once more where S3 has told a wrong clock the time; errors become ours."""
        signed_s, requests = self._clock.now(), self._requests
        try:
            if isinstance(requests, BotocoreS3):
                requests.renew_credentials()
            return request(requests)
        except FileNotFoundError as error:
            self._require_bucket(error)
            raise FileNotFoundError(f"no object {key} in bucket {self.bucket}") from error
        except (AlreadyExistsError, FileExistsError) as error:
            raise FileExistsError(f"there is an object {key} in bucket {self.bucket} already") from error
        except CredentialTrouble as error:
            raise StoreUnavailable(str(error)) from error
        except NotS3 as error:
            raise PreflightError(f"bucket {self.bucket} at {self.endpoint.url}: {error}") from error
        except (BaseError, BotoCoreError, ClientError, ResponseParserError) as error:
            trouble = error
        cause = self._cause(key, trouble)
        if isinstance(cause, Cause) and self._set_clock(cause, signed_s):
            return self._ask(key, request)
        raise self._told(key, trouble, cause) from trouble

    def _cause(self, key: str, error: Exception) -> Cause | str | None:
        """Why S3 refused: as it has said already, or says when it is asked in another way; None: it did not."""
        if isinstance(error, ClientError):
            return cause_of(error)
        text = str(error)
        found = page_told(text) or Cause.of(text)
        if (
            found
            or isinstance(error, BotoCoreError | ResponseParserError)
            or PROVIDER in text
            or UNHEARD.search(_first_line(error))
        ):
            return found or None
        return BotocoreS3(self.bucket, self.endpoint, self._session, self._clock, prefix=self._prefix, attempts=1).why(
            key
        )

    def _set_clock(self, cause: Cause, signed_s: float) -> bool:
        """Was this machine's clock the reason, and is it known now what the time is?"""
        if cause.code not in DATE_REFUSALS or not self._clock.corrected(cause.date, signed_s):
            return False
        log.warning("this machine's clock is %.0f s off: requests are dated by S3's", abs(self._clock.ahead_s))
        self._requests = self._by_botocore()
        return True

    def _by_botocore(self, attempts: int = ATTEMPTS) -> BotocoreS3:
        return BotocoreS3(
            self.bucket, self.endpoint, self._session, self._clock, prefix=self._prefix, attempts=attempts
        )

    def _told(self, key: str, error: Exception, cause: Cause | str | None) -> PreflightError | StoreUnavailable:
        """What to raise: a refusal, or trouble that may pass."""
        text, where = _first_line(error), self.where
        if isinstance(cause, Cause):
            if cause.code == "NoSuchBucket":
                return PreflightError(f"there is no bucket {self.bucket} at {self.endpoint.url}")
            if cause.renewable or cause.code in PASSING:
                return StoreUnavailable(f"{where}: {cause.told()}")
            return PreflightError(f"{where}: {key} refused: {cause.told()}")
        if cause:
            return PreflightError(f"{where}: {cause}")
        if PROVIDER in text:
            return StoreUnavailable(f"credentials cannot be renewed: {text.partition(PROVIDER)[2]}")
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return PreflightError(f"{where}: access to {key} refused: {text}")
        return StoreUnavailable(f"{where}: {text}")

    def _require_bucket(self, error: Exception) -> None:
        if "NoSuchBucket" in str(error):
            raise PreflightError(f"there is no bucket {self.bucket} at {self.endpoint.url}") from error
        if told := page_told(str(error)):
            raise PreflightError(f"bucket {self.bucket} at {self.endpoint.url}: {told}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def open_bucket(bucket: str) -> S3Store:
    """A bucket of the user's own, with the user's own credentials."""
    return S3Store(bucket)
