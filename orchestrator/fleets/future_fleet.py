"""Workers that answer bytes with bytes some time: processes, tasks of a cluster, whatever gives a future for a request.

A backend without an Invoke API passes its `submit` and has a fleet: requests, replies, outcomes, results in the store
and the clock are the same as everywhere. What a future raises becomes the outcome of its call; one that does not end is
given up when its time is over. Knows neither processes nor clusters. Read next: `replies.py`, docs/adding-a-backend.md.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait

from msgspec.structs import replace

from gradmux.lambda_worker.contract import Request, encode_request
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.calling import SILENCE_S, MakesRequests
from gradmux.orchestrator.fleets.inbox import Inbox
from gradmux.orchestrator.fleets.refusals import Verdict
from gradmux.orchestrator.fleets.replies import Answer, ReplyReader, ended
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome, Store
from gradmux.orchestrator.training.stored import Shelf

Submit = Callable[[bytes], "Future[bytes]"]
"""a request as JSON -> its reply as JSON, some time; must return at once"""


class FutureFleet:
    """`calling.WorkerFleet` over `submit`."""

    def __init__(
        self,
        submit: Submit,
        requests: MakesRequests,
        store: Store,
        *,
        run: str,
        timeout_s: float,
        shelf: Shelf | None = None,
        request_bytes: int | None = None,
        silence_s: float = SILENCE_S,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`request_bytes`: what a request may have; `silence_s`: how long beyond `timeout_s` an answer is waited for,
        since a call may wait for a free worker; `check` raises PreflightError when nothing can be submitted."""
        self._submit, self._requests, self._reader = submit, requests, ReplyReader(run, store, shelf)
        self._limit_s, self._most, self._check = timeout_s + silence_s, request_bytes, check
        self._inbox = Inbox()
        self._waiting: deque[tuple[float, Invocation, Future[bytes]]] = deque()
        """(instant at which it is given up, call, future), in the order of these instants"""
        self._given_up: set[Future[bytes]] = set()
        """whose calls have been reported as timed out; only one thread adds, and looks whether they are done before"""
        self._telling = threading.Lock()
        self._closed = False

    @property
    def cpus(self) -> tuple[str, ...]:
        return tuple(sorted(self._reader.cpus))

    def now(self) -> float:
        return self._inbox.now()

    def check(self, connections: int = 1) -> None:
        if self._check is not None:
            self._check()

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        bodies = [self._body(self._requests.build(call)) for call in invocations]
        start_s = self._inbox.expect(len(invocations))
        for call, body in zip(invocations, bodies, strict=True):
            future = self._submit(body)
            self._waiting.append((start_s + self._limit_s, call, future))
            future.add_done_callback(lambda done, call=call: self._arrived(call, done))  # type: ignore[misc]
        return start_s

    def next(self, until_s: float | None) -> Arrival | None:
        while True:
            give_up_s = self._next_given_up()
            until = until_s if give_up_s is None else give_up_s if until_s is None else min(until_s, give_up_s)
            arrival = self._inbox.take(until)
            if arrival is not None or until == until_s:
                return arrival

    def warm(self, invocations: Sequence[Invocation]) -> list[Arrival]:
        return self.run([(call, self._requests.warm(call)) for call in invocations])

    def run(self, calls: Sequence[tuple[Invocation, Request]]) -> list[Arrival]:
        futures = [(call, self._submit(self._body(request))) for call, request in calls]
        wait([future for _, future in futures], self._limit_s)
        return [self._read(call, future) for call, future in futures]

    def close(self) -> None:
        self._closed = True
        self._inbox.abandon()
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def _body(self, request: Request) -> bytes:
        """With everything in its answer: nothing is looked for in the store besides large results."""
        body = encode_request(replace(request, reply=replace(request.reply, early=False, post=False)))
        if self._most is not None and len(body) > self._most:
            raise ConfigError(
                f"round {request.round}, worker {request.worker}: its request has {len(body)} bytes, workers here take "
                f"{self._most}: use more workers or a smaller batch"
            )
        return body

    def _next_given_up(self) -> float | None:
        """When the next call is given up that has not ended; those whose time is over are, now."""
        while self._waiting and self._waiting[0][2].done():
            self._waiting.popleft()
        while self._waiting and self._waiting[0][0] <= self.now():
            _, call, future = self._waiting.popleft()
            with self._telling:  # its answer may come just now: one of both is told
                if future.done():
                    continue
                self._given_up.add(future)
            future.cancel()
            self._inbox.put(ended(call, Outcome.TIMED_OUT, f"no answer within {self._limit_s:g} s"))
        return self._waiting[0][0] if self._waiting else None

    def _arrived(self, call: Invocation, done: Future[bytes]) -> None:
        """In any thread. Whatever goes wrong must end the run, not leave it waiting."""
        with self._telling:
            if self._closed or done in self._given_up:
                self._given_up.discard(done)
                return
        try:
            self._inbox.put(self._read(call, done))
        except Exception as error:
            self._inbox.fail(error)

    def _read(self, call: Invocation, future: Future[bytes]) -> Arrival:
        """What came of a call that has ended, or whose time is over. Raises: PreflightError for another contract."""
        try:
            body = future.result(timeout=0)
        except (TimeoutError, CancelledError) as error:
            return ended(call, Outcome.TIMED_OUT, str(error) or f"no answer within {self._limit_s:g} s")
        except MemoryError as error:
            return ended(call, Outcome.OUT_OF_MEMORY, f"MemoryError: {error}")
        except (BrokenExecutor, OSError) as error:
            return ended(call, Outcome.CRASHED, f"{type(error).__name__}: {error}")
        except Exception as error:  # the worker's own
            return ended(call, Outcome.FAILED, f"{type(error).__name__}: {error}")
        return self._reader.read(call, Answer(Verdict.ANSWERED, body=body))
