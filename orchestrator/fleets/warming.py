"""Before the first round: workers are started, connections opened, models and data read, all at once and for nothing.

Otherwise the first round does it, and looks slower than any other. Knows no scheme by name. Used by `runs/train.py`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gradmux.orchestrator.ports import Arrival, Invocation, Trainer
from gradmux.orchestrator.schemes.scheme import Scheme, Slots

log = logging.getLogger(__name__)

Warm = Callable[[Sequence[Invocation]], Sequence[Arrival]]


def warm_up(scheme: Scheme, trainer: Trainer, warm: Warm, epoch: int) -> None:
    """Warms the workers of round 0 for its tasks, as `scheme` assigns them: a fresh object, which is spent by that.

    Publishes their jobs. What goes wrong is only logged: the round itself will meet it, and knows what to do.
    """
    assignment = {worker: slots for worker, slots in scheme.assign(0).items() if any(slots)}
    for job in sorted(_jobs(assignment.values())):
        trainer.publish(job)
    calls = [Invocation(0, worker, 1, slots, 0.0, epoch) for worker, slots in assignment.items()]
    troubles = [arrival for arrival in warm(calls) if arrival.error]
    if troubles:
        log.warning("%d of %d workers did not warm up: %s", len(troubles), len(calls), troubles[0].error)


@contextmanager
def memory_settled() -> Iterator[None]:
    """Within it Python's collector of cycles leaves alone what there was before: libraries, models, data.

    To walk over those millions of objects again and again would hold replies up. A program that had objects frozen
    before keeps what is frozen now: they cannot be told apart, and it wants such objects left alone.
    """
    frozen_before = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen_before:
            gc.unfreeze()


def _jobs(slots: Iterable[Slots]) -> set[int]:
    return {task.job for each in slots for task in each if task is not None}
