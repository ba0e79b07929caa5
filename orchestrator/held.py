"""The results that a run holds: until their job decodes, or, where their weight is known on arrival, not at all.

A scheme that `Adds` names the place of a result in its job's sum; such results go to `ports.Sums` as they come, which
gives the same bits in any order, and what no decode will use is dropped at once. All others wait here for their
decode. Never looks into a result. Read next: `loop.py`, `schemes/asks.py`, `training/gradients.py`.
"""

from __future__ import annotations

from typing import Any

from gradmux.orchestrator.ports import Sums
from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.scheme import Decoding, Key


class Held:
    """Results by key, or sums by job."""

    def __init__(self, sums: Sums | None = None) -> None:
        """`sums` adds results as they come, where the scheme lets it; None: everything is held until its job decodes.

        What looks up results is made with it, before there is a scheme: `serve` names that.
        """
        self._scheme: Checked | None = None
        self._adding: Checked | None = None
        self._sums = sums
        self._results: dict[Key, Any] = {}
        self._added: dict[int, set[Key]] = {}
        """job -> results that its sum has in it"""
        self._simulated = True
        """no result has ever come: answers have none in a simulation"""

    def __getitem__(self, key: Key) -> Any:
        return self._results[key]

    def __len__(self) -> int:
        return len(self._results)

    def serve(self, scheme: Checked) -> None:
        """From now on it keeps what decodes of this scheme will use."""
        self._scheme = scheme
        self._adding = scheme if self._sums is not None and scheme.adds else None

    def put(self, key: Key, result: Any) -> None:
        """A result that the scheme has just heard of; a repeated key changes nothing."""
        self._simulated = False
        if self._adding is None:
            self._results.setdefault(key, result)
            return
        place = self._adding.place(key)
        if place is None:
            return
        added = self._added.setdefault(place.job, set())
        if key not in added:
            assert self._sums is not None
            self._sums.add(place, result)
            added.add(key)

    def terms(self, job: int, decoding: Decoding) -> list[tuple[Any, float]]:
        """What the trainer combines for a job that decodes now: (result or None, weight)."""
        assert self._scheme is not None, "served before anything decodes"
        added = self._added.pop(job, None)
        if added is None:
            return [(self._term(key, self._scheme), weight) for key, weight in decoding.weights.items()]
        for key in added ^ decoding.weights.keys():
            used = "is not used by its decode" if key in added else "is used by its decode, but had no place"
            self._scheme.fault(key.round, f"worker {key.worker}'s answer for job {job} {used}, though `adds` is true")
        assert self._sums is not None
        return [(self._sums.take(job), 1.0)]

    def _term(self, key: Key, scheme: Checked) -> Any:
        """None in simulation, where there are no results."""
        if key not in self._results and not self._simulated:
            scheme.fault(key.round, f"worker {key.worker}'s answer is used by a decode, but keeps() let go of it")
        return self._results.get(key)

    def drop(self) -> None:
        """Forgets what no later decode will use."""
        if self._results:
            assert self._scheme is not None, "served before anything is put"
            keeps = self._scheme.keeps()
            self._results = {key: result for key, result in self._results.items() if key in keeps}
