"""One round between its dispatch and the return of its last invocation: who was asked, who answered, and its instants.

Plain bookkeeping; decides nothing. Read next: `rounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gradmux.orchestrator.policies import Backup
from gradmux.orchestrator.ports import Arrival
from gradmux.orchestrator.schemes.scheme import BoolArray, Slots

MOST_BACKUPS = 2
"""of a round, where a scheme says how long it may last"""


@dataclass(slots=True)
class RoundState:
    """Times are seconds of the fleet's clock."""

    index: int
    slots: dict[int, Slots]
    """worker -> its tasks; workers that are not asked are not in it"""
    start_s: float = 0.0
    sent: bool = False
    closed: bool = False
    waited: bool = False
    """mu rule: the stragglers at the cut did not conform"""
    cut_passed: bool = False
    backups: int = 0
    """times that missing tasks were invoked again"""
    deadlines_passed: int = 0
    first_s: float | None = None
    """when the first whole answer came"""
    heard: set[int] = field(default_factory=set)
    """workers that answered all they were asked"""
    slots_heard: dict[int, set[int]] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """worker -> invocations made or queued"""
    running: dict[int, int] = field(default_factory=dict)
    """worker -> invocations in flight"""
    failures: dict[int, str] = field(default_factory=dict)
    """worker -> why it failed last"""

    @property
    def open(self) -> bool:
        """Dispatched and not closed."""
        return self.sent and not self.closed

    @property
    def over(self) -> bool:
        """Closed, and nothing of it is in flight any more."""
        return self.closed and not any(self.running.values())

    def missing(self) -> list[int]:
        """Workers that have not answered all they were asked."""
        return [w for w in self.slots if w not in self.heard]

    def late(self, workers: int) -> BoolArray:
        """(workers,) true where `missing`."""
        late = np.zeros(workers, dtype=np.bool_)
        late[self.missing()] = True
        return late

    def note(self, arrival: Arrival) -> None:
        """A good answer: completes the worker when each of its tasks is answered."""
        if self.first_s is None and arrival.final:
            self.first_s = arrival.at_s
        got = self.slots_heard.setdefault(arrival.worker, set())
        got.update(arrival.slots)
        if all(slot in got for slot, task in enumerate(self.slots[arrival.worker]) if task is not None):
            self.heard.add(arrival.worker)

    def missing_jobs(self, worker: int) -> tuple[int, ...]:
        """Jobs whose task this worker has not answered."""
        got = self.slots_heard.get(worker, set())
        tasks = enumerate(self.slots.get(worker, ()))
        return tuple(sorted({task.job for slot, task in tasks if task is not None and slot not in got}))

    def cut_s(self, mu: float) -> float | None:
        """When the mu rule calls the rest stragglers; None before the first answer and once it has passed."""
        if self.first_s is None or self.cut_passed:
            return None
        return self.start_s + (1.0 + mu) * (self.first_s - self.start_s)

    def deadline_s(self, limit_s: float | None) -> float | None:
        """The next instant at which something is done about what is missing."""
        return None if limit_s is None else self.start_s + (1 + self.deadlines_passed) * limit_s

    def backup_s(self, backup: Backup | None) -> float | None:
        """When missing tasks are invoked again by the time rule; None: not, not yet known, or often enough already."""
        if backup is None or backup.slack is None or self.backups >= backup.times or self.first_s is None:
            return None
        return self.start_s + (1 + self.backups) * (1.0 + backup.slack) * (self.first_s - self.start_s)

    def impatient_s(self, limit_s: float | None) -> float | None:
        """The same where a scheme says how long its rounds may last."""
        if limit_s is None or self.backups >= MOST_BACKUPS:
            return None
        return self.start_s + (1 + self.backups) * limit_s

    def wants_backup(self, backup: Backup | None, now_s: float) -> bool:
        """Has the share or the time come at which missing tasks are invoked again?"""
        if backup is None or self.backups >= backup.times or self.closed:
            return False
        if backup.share is not None and not self.backups and len(self.heard) >= backup.share * len(self.slots):
            return True
        instant = self.backup_s(backup)
        return instant is not None and now_s >= instant
