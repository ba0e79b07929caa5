"""Who may ask a run to end: Ctrl-C, the machine that shuts down, a closed terminal, `gradmux cancel`.

Asked once it saves and leaves; at a second Ctrl-C it leaves at once. Knows nothing of what a run does.
Read next: `play.py`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gradmux.orchestrator.errors import Interrupted, RunCancelled, RunStopped
from gradmux.orchestrator.runs.life import cancelled_epoch
from gradmux.orchestrator.runs.paths import RunPaths

LOOK_S = 0.2
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """What the loop asks between events."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        """`look_s`: between two looks at the cancel file."""
        self._look_s = look_s
        self._reason = ""
        self._paths: RunPaths | None = None
        self._epoch = 0
        self._place_ended: Callable[[], str] = str
        self._looked_s = 0.0

    def watch(self, paths: RunPaths, epoch: int, place_ended: Callable[[], str] = str) -> None:
        """From now on this life of a run ends when somebody cancels it, which is said once.

        It ends also when `place_ended` tells why nobody answers any more.
        """
        self._paths, self._epoch, self._looked_s = paths, epoch, 0.0
        self._place_ended = place_ended

    def ask(self, reason: str) -> None:
        """Wants the run to end soon. The first reason counts."""
        self._reason = self._reason or reason

    @property
    def asked(self) -> bool:
        return bool(self._reason)

    def check(self) -> None:
        """Raises Interrupted or RunCancelled when somebody wants the run to end, RunStopped when its place is gone."""
        if self._reason:
            raise Interrupted(self._reason)
        now_s = time.monotonic()
        if self._paths is None or now_s - self._looked_s < self._look_s:
            return
        self._looked_s = now_s
        if self._paths.cancel.exists() and cancelled_epoch(self._paths) >= self._epoch:
            run, self._paths = self._paths.run, None
            raise RunCancelled(f"{run} was cancelled")
        if reason := self._place_ended():
            raise RunStopped(reason)


@contextmanager
def stop_on_signals(stop: Stop, tell: Callable[[str], None]) -> Iterator[None]:
    """While open, the first signal asks to stop, and a further Ctrl-C raises KeyboardInterrupt. Main thread only.

    `tell` is called with what happens now.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and stop.asked:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        stop.ask("interrupted" if number == signal.SIGINT else f"ended by {name}")
        tell("stopping: the models are saved first; Ctrl-C again leaves at once")

    before = {number: signal.signal(number, handle) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
