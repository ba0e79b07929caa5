"""Writes the record, and now and then a checkpoint: always right after a line, so that the two never disagree.

When a line has been written, the record holds every gradient that the models have taken, and no other. A checkpoint at
that instant is never ahead of the record; after a crash the record may be ahead of the checkpoint, and what it has
beyond is done again. Knows neither torch nor files. Read next: `play.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gradmux.orchestrator.ports import Resumable
from gradmux.orchestrator.record import Header, Line, Recorder, RoundLine
from gradmux.orchestrator.runs.checkpoints import Checkpoints, Manifest

log = logging.getLogger(__name__)


class Keeper:
    """A `Recorder` that saves the models after every `every` steps of all of them."""

    def __init__(
        self,
        record: Recorder,
        checkpoints: Checkpoints,
        trainer: Resumable,
        start: Manifest,
        *,
        every: int,
        saved: Callable[[], None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`start`: of this life, with the steps that are done. `every` 0: only when `save` is called.

        `saved` is called after each checkpoint; `check` before each that is due, and raises what ends the run without.
        """
        self._record, self._checkpoints, self._trainer, self._every = record, checkpoints, trainer, every
        self._manifest, self._saved, self._check = start, saved, check
        self._steps = list(start.steps)
        self._saved_steps: tuple[int, ...] | None = None
        self._next = self._due_after(start.steps)

    def write(self, line: Line) -> None:
        self._record.write(line)
        if isinstance(line, Header):
            return
        for decoded in line.decoded:
            self._steps[decoded.model] = decoded.step + decoded.steps
        if self._every and isinstance(line, RoundLine) and min(self._steps) >= self._next:
            if self._check is not None:
                self._check()
            self.save()

    def save(self) -> None:
        """Saves all models, unless nothing has changed since. Raises DiskError."""
        steps = tuple(self._steps)
        if steps == self._saved_steps:
            return
        began = time.perf_counter()
        manifest = replace(self._manifest, steps=steps)
        path = self._checkpoints.write(manifest, map(self._trainer.state, range(len(steps))))
        log.info("checkpoint %s: %.3f s", path.name, time.perf_counter() - began)
        self._saved_steps, self._next = steps, self._due_after(steps)
        if self._saved is not None:
            self._saved()

    def _due_after(self, steps: Sequence[int]) -> int:
        """The next multiple of `every`."""
        return (min(steps) // self._every + 1) * self._every if self._every else 0
