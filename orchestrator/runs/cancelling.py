"""Cancels a run: its workers are told first, then its process, and then somebody has to say what still runs.

A worker that has begun cannot be called back, so what is in flight ends by itself: the process waits for it, and this
waits for the process. Where there is no process any more, the record says how much can still run, and the function's
timeout for how long. Knows no store. Read next: `stopping.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gradmux.orchestrator.backends import find_backend
from gradmux.orchestrator.runs.life import Life, last_life, request_cancel
from gradmux.orchestrator.runs.lock import is_held
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.status import RunStatus, State, status_of

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of it."""

    run: str
    state: State
    workers_told: bool
    """False: the store did not take the marker, or the run never had workers"""
    in_flight: int | None
    """invocations that may still run; None: not known, its process was killed"""
    longest_s: float
    """for how long they can still be billed, at most"""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state.value}

    def describe(self) -> str:
        """One line."""
        if self.state is State.DONE:
            return f"{self.run} is done: there is nothing to cancel"
        if self.state.active:
            return f"{self.run} was told to end, but its process has not ended yet: `gradmux status {self.run}`"
        if self.in_flight == 0:
            return f"{self.run} is cancelled; nothing is in flight"
        how_many = (
            "what was in flight when it was killed" if self.in_flight is None else f"{self.in_flight} invocations"
        )
        return f"{self.run} is cancelled; {how_many} may still run, and be billed, for {self.longest_s:.0f} s at most"


def cancel(paths: RunPaths, tell_workers: Callable[[Life], bool], patience_s: float) -> Cancelled:
    """Cancels the run and waits up to `patience_s` for its process. `tell_workers` puts the marker of a life's epoch.

    Raises: FolderError for a damaged folder.
    """
    life, before = last_life(paths), status_of(paths)
    if before.state is State.DONE:
        return Cancelled(paths.run, before.state, False, 0, 0.0)
    told = tell_workers(life) if life is not None and life.place is not None else False
    request_cancel(paths, 0 if life is None else life.epoch)
    deadline = time.monotonic() + patience_s
    while is_held(paths.lock) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    in_flight, longest_s = _left(paths, life, before, status_of(paths))
    return Cancelled(paths.run, status_of(paths).state, told, in_flight, longest_s)


def _left(paths: RunPaths, life: Life | None, before: RunStatus, after: RunStatus) -> tuple[int | None, float]:
    """(invocations that may still run, for how many seconds)."""
    if life is None or life.place is None or after.state is State.DONE:
        return 0, 0.0
    if not after.state.active and not find_backend(life.place.backend).workers_outlive_run:
        return 0, 0.0
    if after.state.active or before.state is State.INTERRUPTED:
        return None, life.place.timeout_s
    ended_s = time.time() - paths.record.stat().st_mtime if paths.record.exists() else 0.0
    left_s = max(0.0, life.place.timeout_s - ended_s)
    return (after.in_flight, left_s) if left_s and after.in_flight else (0, 0.0)


def tell_workers(paths: RunPaths, life: Life) -> bool:
    """Puts the marker that workers look for before they compute. False when the store does not take it.

    Of a run without a process it also removes what that has left in the store for its workers: nothing else will.
    """
    from gradmux.lambda_worker.contract import cancel_marker
    from gradmux.orchestrator.errors import PreflightError, RunStopped
    from gradmux.orchestrator.runs.cleanup import leftovers
    from gradmux.orchestrator.runs.life import store_name
    from gradmux.orchestrator.store import Keys

    assert life.place is not None
    try:
        store = find_backend(life.place.backend).reopen(life.place)
    except PreflightError:
        return False
    keys = Keys(store_name(paths))
    try:
        store.put(keys.cancel, cancel_marker(life.epoch))
        if not is_held(paths.lock):
            store.delete(leftovers(store, keys, life.epoch))
    except (PreflightError, RunStopped):
        return False
    finally:
        store.close()
    return True
