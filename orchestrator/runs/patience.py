"""A store that waits trouble out: expired credentials, no network, a service that says 503 for minutes.

Each call runs in a thread, so that Ctrl-C is heard while S3 does not answer, and patience ends whatever the call does:
a server that takes requests and is silent, or lets bytes drip, is trouble like any other. What a client of its own
cannot mend by repeating is tried again here with a new client (new credentials are read then), until patience is over;
then the run stops, and can be resumed. A missing key is an answer, not trouble. Knows no S3. Read next:
`pulse.py`, `orchestrator/store.py`, `orchestrator/moving.py`.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from gradmux.orchestrator.daemons import DaemonThreads
from gradmux.orchestrator.errors import PreflightError, RunStopped
from gradmux.orchestrator.moving import Moving
from gradmux.orchestrator.ports import StoreClient
from gradmux.orchestrator.runs.pulse import EVERY_S, Pulse

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S = 0.2
"""Between two looks whether somebody wants the run to end."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
TOLD_S = 5.0
"""Silence is told after so long."""
THREADS = 8
ALIVE = "alive"
"""the key that the pulse asks for; nothing lies there"""


class StoreSilent(RunStopped):
    """The store has taken a request and does not answer, or so slowly that it comes to nothing."""


class PatientStore:
    """`ports.Store` over clients that `connect` makes."""

    def __init__(
        self, connect: Callable[[], StoreClient], *, patience_s: float, should_stop: Callable[[], None]
    ) -> None:
        """Raises what `connect` raises: trouble before the first call is the user's to mend."""
        self._connect, self._patience_s, self._should_stop = connect, patience_s, should_stop
        self._client = connect()
        self._renewing = threading.Lock()
        self._threads = DaemonThreads(THREADS, "patient-store")
        self._silent = self._told = False
        self._pulse = Pulse(lambda: self._client.exists(ALIVE), every_s=min(EVERY_S, max(1.0, patience_s / 4)))

    def check(self) -> None:
        """Raises StoreSilent when the store has not answered even a small question for as long as patience lasts.

        To be called now and then while workers are waited for, which wait for the store, too.
        """
        silent_s = self._pulse.silent_s()
        if silent_s >= self._patience_s > 0:
            self._silent = True
            told = f"{self._place()} has not answered for {silent_s:.0f} s, and workers need it, too"
            raise StoreSilent(f"{told}; waited {self._patience_s:g} s, then gave up")
        if silent_s >= TOLD_S and not self._told:
            left_s = self._patience_s - silent_s
            line = (
                "%s has not answered for %.0f s, and workers need it, too: in %.0f s the run stops, and can be resumed"
            )
            log.warning(line, self._place(), silent_s, left_s)
        self._told = silent_s >= TOLD_S

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._ask(lambda client: client.put(key, data), f"to take {key}", len(data))

    def create(self, key: str, data: bytes) -> bool:
        return self._ask(lambda client: client.create(key, data), f"to take {key}", len(data))

    def get(self, key: str) -> bytes:
        return self._ask(lambda client: client.get(key), f"for {key}")

    def view(self, key: str) -> memoryview:
        return self._ask(lambda client: client.view(key), f"for {key}")

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._ask(lambda client: client.get_range(key, start, end), f"for {key}", end - start)

    def exists(self, key: str) -> bool:
        return self._ask(lambda client: client.exists(key), f"for {key}")

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        if names:
            self._ask(lambda client: client.delete(names), f"to delete {names[0]}")

    def list(self, prefix: str) -> list[str]:
        return self._ask(lambda client: client.list(prefix), f"for the names under {prefix}")

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        size_bytes = sum(map(len, objects.values()))
        self._ask(lambda client: client.put_many(objects), f"to take {len(objects)} objects", size_bytes)

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        return self._ask(lambda client: client.view_many(keys), f"for {len(keys)} objects")

    def at_once(self, request: Callable[[StoreClient], None], limit_s: float) -> bool:
        """Asks without patience, also when somebody wants the run to end. False when that failed, or takes longer.

        A store that has been silent until patience was over is not asked again.
        """
        if self._silent:
            return False
        call = self._threads.submit(request, self._client)
        try:
            call.result(limit_s)
        except (PreflightError, RunStopped, TimeoutError, concurrent.futures.TimeoutError):
            return False
        return True

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._client.close()

    def _ask(self, request: Callable[[StoreClient], T], what: str, size_bytes: int = 0) -> T:
        """`what` it is waited for, and how many bytes the request moves, as far as that is known."""
        began_s, wait_s, told = time.monotonic(), FIRST_WAIT_S, False
        while True:
            client, moving = self._client, Moving()
            moving.add(size_bytes)
            try:
                answer = self._listening(self._submit(request, client, moving), what, moving, began_s)
            except (PreflightError, RunStopped) as trouble:
                self._should_stop()
                left_s = self._patience_s - (time.monotonic() - began_s)
                if left_s <= 0:
                    self._silent = isinstance(trouble, StoreSilent)
                    raise RunStopped(f"{trouble}; waited {self._patience_s:g} s, then gave up") from trouble
                if not told:
                    log.warning("%s; waiting up to %.0f s for it to end", trouble, left_s)
                    told = True
                self._pause(min(wait_s, left_s))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                self._renew(client)
            else:
                self._silent = False
                return answer

    def _submit(self, request: Callable[[StoreClient], T], client: StoreClient, moving: Moving) -> Future[T]:
        return self._threads.submit(moving.told_of, lambda: request(client))

    def _listening(self, call: Future[T], what: str, moving: Moving, began_s: float) -> T:
        """Waits for a call, and for somebody who wants the run to end. Raises StoreSilent when patience is over.

        Patience counts from the first try on; what the bytes of this one may take comes in addition.
        """
        asked_s, told = time.monotonic(), False
        while True:
            done, _ = concurrent.futures.wait([call], LOOK_S)
            if done:
                return call.result()
            self._should_stop()
            now_s = time.monotonic()
            left_s = max(began_s + self._patience_s, asked_s) + moving.longest_s - now_s
            if left_s <= 0:
                call.cancel()
                raise StoreSilent(f"{self._place()} does not answer, or too slowly (asked {what})")
            if not told and now_s - asked_s >= TOLD_S:
                line = (
                    "waiting for %s since %.0f s, up to %.0f s more: asked %s; then the run stops, and can be resumed"
                )
                log.warning(line, self._place(), now_s - asked_s, left_s, what)
                told = True

    def _place(self) -> str:
        """The store, for a sentence; clients say it in `where`, if they like."""
        return str(getattr(self._client, "where", "the store"))

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
