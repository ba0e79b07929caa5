"""What overlapping schemes share: round t is job t, rounds end in any order, and each ends when its job decodes.

Read next: `pipeline.py`.
"""

from __future__ import annotations

from gradmux.orchestrator.schemes.synchronous import State, SynchronousScheme


class OverlappingScheme(SynchronousScheme[State]):
    """A job's state lives until the next job ends after its decode."""

    overlapping = True

    def end_round(self, t: int) -> tuple[int, ...]:
        """Job t decodes now. The jobs that were decoded before are forgotten."""
        for job in self._decoded:
            if self._active.pop(job).complete:
                self._completed.add(job)
        self._decoded.clear()
        self._closed = t + 1
        return (t,)

    def _recoverable(self, t: int) -> bool:
        """No job outlives its round."""
        return True
