"""Threads that are not waited for: a call that hangs in one does not keep the process from ending.

`ThreadPoolExecutor` joins its threads when the interpreter ends, so that a server which does not answer any more would
hold a run that has given up long ago. Each call sees the context variables of who submitted it. Knows nothing of calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Work(NamedTuple):
    future: Future[Any]
    call: Callable[[], Any]


class DaemonThreads(Executor):
    """At most so many threads, started when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started, self._closed = 0, False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        call = partial(copy_context().run, fn, *args, **kwargs)
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._name}: no calls after the end")
            self._queue.put(_Work(future, call))
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                name = f"{self._name}-{self._started}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
                self._started += 1
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """No calls from now on; threads end after what they have to do. Never waits."""
        with self._lock:
            self._closed = True
        while cancel_futures:
            try:
                work = self._queue.get_nowait()
            except Empty:
                break
            if work is not None:
                work.future.cancel()
        self._queue.put(None)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if work.future.set_running_or_notify_cancel():
                _fulfil(work)
            del work  # what it holds may be large
        self._queue.put(None)  # for the next thread

    def _next(self) -> _Work | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            self._idle.release()
            return self._queue.get()


def _fulfil(work: _Work) -> None:
    try:
        result = work.call()
    except BaseException as error:
        work.future.set_exception(error)
    else:
        work.future.set_result(result)
