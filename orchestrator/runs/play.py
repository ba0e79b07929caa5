"""Plays one life of a run to its end, whatever the end is: done, stopped, cancelled, or a full disk.

Whoever ends it early finds the models saved, and no worker of this life begins to compute after that. Knows no scheme,
no backend and no torch. Read next: `orchestrator/loop.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gradmux.orchestrator.disk import DiskError
from gradmux.orchestrator.errors import PreflightError, RowsInteract, RunCancelled, RunStopped
from gradmux.orchestrator.loop import Loop, RunSummary
from gradmux.orchestrator.record import EndLine
from gradmux.orchestrator.runs.keeper import Keeper


def play(
    loop: Loop,
    keeper: Keeper,
    *,
    drain_s: float,
    recall: Callable[[], None],
    steps: int | None = None,
    done: Callable[[EndLine], None] = lambda _: None,
    late_s: float | None = None,
) -> RunSummary:
    """Runs the loop, saves the models at its end, and waits for answers that are still billed.

    `done` is called as soon as the models are, with the end of the record that is not written yet; answers are waited
    for after that, up to `late_s` (None: as `drain_s`, which is how long those of a cancelled run are waited for).
    `recall` tells the workers of this life not to compute any more; `steps` of the whole run: when the loop ends with
    fewer, it was a segment of it, and all that is in flight is waited for. Raises what ended the run early: RunStopped,
    when it can be resumed.
    """
    try:
        loop.run()
    except DiskError:
        recall()
        raise
    except RunStopped as stopped:
        recall()
        if not isinstance(stopped, RowsInteract):  # which goes on from the checkpoint before
            keeper.save()
        if isinstance(stopped, RunCancelled):
            loop.drain(drain_s, stopped.state, str(stopped))
        raise
    except PreflightError as error:
        keeper.save()
        raise RunStopped(f"{error}; mend it, then resume the run") from error
    keeper.save()
    if steps is not None and loop.steps < steps:
        return loop.drain(math.inf, reason="a segment; the run goes on")
    try:
        done(loop.ending())
    except BaseException as error:
        recall()
        loop.fail(error)
        raise
    summary = loop.drain(drain_s if late_s is None else late_s)
    if summary.in_flight:
        recall()
    return summary
