"""A store that waits trouble out: expired credentials, no network, a service that says 503 for minutes.

Each call runs in a thread, so that Ctrl-C is heard while S3 does not answer. What a client of its own cannot mend by
repeating is tried again here with a new client (new credentials are read then), until patience is over; then the run
stops, and can be resumed. A missing key is an answer, not trouble. Knows no S3. Read next: `orchestrator/store.py`.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from gradmux.orchestrator.errors import PreflightError, RunStopped
from gradmux.orchestrator.ports import StoreClient

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S = 0.2
"""Between two looks whether somebody wants the run to end."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
THREADS = 8


class PatientStore:
    """`ports.Store` over clients that `connect` makes."""

    def __init__(
        self, connect: Callable[[], StoreClient], *, patience_s: float, should_stop: Callable[[], None]
    ) -> None:
        """Raises what `connect` raises: trouble before the first call is the user's to mend."""
        self._connect, self._patience_s, self._should_stop = connect, patience_s, should_stop
        self._client = connect()
        self._renewing = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="patient-store")

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._ask(lambda client: client.put(key, data))

    def create(self, key: str, data: bytes) -> bool:
        return self._ask(lambda client: client.create(key, data))

    def get(self, key: str) -> bytes:
        return self._ask(lambda client: client.get(key))

    def view(self, key: str) -> memoryview:
        return self._ask(lambda client: client.view(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._ask(lambda client: client.get_range(key, start, end))

    def exists(self, key: str) -> bool:
        return self._ask(lambda client: client.exists(key))

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        self._ask(lambda client: client.delete(names))

    def list(self, prefix: str) -> list[str]:
        return self._ask(lambda client: client.list(prefix))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._ask(lambda client: client.put_many(objects))

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        return self._ask(lambda client: client.view_many(keys))

    def at_once(self, request: Callable[[StoreClient], None], limit_s: float) -> bool:
        """Asks without patience, also when somebody wants the run to end. False when that failed, or takes longer."""
        call = self._threads.submit(request, self._client)
        try:
            call.result(limit_s)
        except (PreflightError, RunStopped, TimeoutError, concurrent.futures.TimeoutError):
            return False
        return True

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _ask(self, request: Callable[[StoreClient], T]) -> T:
        began_s, wait_s, told = time.monotonic(), FIRST_WAIT_S, False
        while True:
            client = self._client
            try:
                return self._listening(self._threads.submit(request, client))
            except (PreflightError, RunStopped) as trouble:
                self._should_stop()
                left_s = self._patience_s - (time.monotonic() - began_s)
                if left_s <= 0:
                    raise RunStopped(f"{trouble}; waited {self._patience_s:g} s, then gave up") from trouble
                if not told:
                    log.warning("%s; waiting up to %.0f s for it to end", trouble, left_s)
                    told = True
                self._pause(min(wait_s, left_s))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                self._renew(client)

    def _listening(self, call: Future[T]) -> T:
        """Waits for a call, and for somebody who wants the run to end."""
        while True:
            done, _ = concurrent.futures.wait([call], LOOK_S)
            if done:
                return call.result()
            self._should_stop()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._should_stop()
            time.sleep(min(LOOK_S, left_s))

    def _renew(self, client: StoreClient) -> None:
        """A new client in the place of this one, unless another thread was first."""
        with self._renewing:
            if self._client is not client:
                return
            try:
                self._client = self._connect()
            except PreflightError as error:
                log.info("no new credentials yet: %s", error)
                return
            client.close()
