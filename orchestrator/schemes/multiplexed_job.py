"""One job of M-SGC: which private chunks and which coded groups are in, and what each worker computes in each slot.

`owed[i]` is the number of private chunks that worker i was given and that are missing. It redoes them in its next
slots past W-2, so at the turn of coded group b it is free iff it owes no more chunks than there are such slots before.
That is all that `recoverable` counts. Read next: `multiplexed.py`, which plays the rounds.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from gradmux.orchestrator.schemes.codes import Code, Combination
from gradmux.orchestrator.schemes.facts import FloatArray, Whole
from gradmux.orchestrator.schemes.scheme import Decoding, Key, Task

Amount = TypeVar("Amount", float, FloatArray)


def slot_count(burst: Whole, window: Whole) -> Whole:
    """W-1+B: the rounds for which a job lives, and so the tasks of a round, each for a job of its own."""
    return window - 1 + burst


def group_size(workers: int, burst: Amount, private: Amount, code_load: Amount) -> Amount:
    """y = 1/(B + n (W-1) l): fraction of the batch in one D2 group, where there are any; l is the load of its code."""
    return 1.0 / (burst + workers * private * code_load)


class Layout:
    """How the chunks of a job are numbered and sized: first D1, worker by worker, then D2, group by group."""

    def __init__(self, workers: int, burst: int, window: int, code: Code | None) -> None:
        self.workers, self.burst, self.code = workers, burst, code
        self.private = window - 1
        """D1 chunks per worker"""
        self.groups = 0 if code is None else burst
        """D2 groups"""
        self.chunks_per_group = 0 if code is None else code.chunks
        self.group_size = 0.0 if code is None else group_size(workers, burst, self.private, code.load)
        """y: fraction of the batch in one D2 group"""
        self.private_size = 1.0 / (workers * self.private) if code is None else code.load * self.group_size
        """fraction of the batch in one D1 chunk, and in what one worker computes of one group"""

    def chunk_sizes(self) -> FloatArray:
        """(chunks,) fractions of the batch."""
        shared = np.full(self.groups * self.chunks_per_group, self.group_size / max(1, self.chunks_per_group))
        return np.concatenate([np.full(self.workers * self.private, self.private_size), shared])

    def private_chunk(self, worker: int, chunk: int) -> int:
        """Number of a worker's `chunk`-th private chunk."""
        return worker * self.private + chunk

    def shared_chunk(self, group: int, chunk: int) -> int:
        """Number of the `chunk`-th chunk of a group."""
        return self.workers * self.private + group * self.chunks_per_group + chunk


class MultiplexedJob:
    """What has been sent and heard of one job."""

    def __init__(self, job: int, layout: Layout) -> None:
        self.job, self.layout = job, layout
        code, groups = layout.code, layout.groups
        self.words = [] if code is None else [code.draw(job, group) for group in range(groups)]
        self.receptions = [word.reception() for word in self.words]
        self._slots = 0
        """slots sent so far"""
        self._found = np.full((layout.workers, layout.private), -1)
        """slot that brought each private chunk; -1: missing"""
        self._missing = layout.workers * layout.private
        """private chunks not in"""
        self._owed = np.zeros(layout.workers, dtype=np.int64)
        """private chunks sent to each worker and not in"""
        self._owing = [layout.workers] + [0] * layout.private
        """workers by how many chunks they owe"""
        self._redone: dict[tuple[int, int], int] = {}
        """(slot, worker) -> private chunk that it redoes there"""
        self._unfinished = groups
        """D2 groups that do not decode yet"""

    @property
    def complete(self) -> bool:
        """Is all of D1 in, and does every group of D2 decode?"""
        return self._missing == 0 and self._unfinished == 0

    def dispatch(self, slot: int) -> list[Task | None]:
        """What each worker computes in `slot`, given what is missing now. Slots are sent in order, each once."""
        assert slot == self._slots, f"job {self.job}: slot {slot} is not the next one, {self._slots}"
        self._slots += 1
        workers = range(self.layout.workers)
        if slot >= self.layout.private:
            return [self._redo_or_code(slot, worker) for worker in workers]
        self._owed += 1
        self._owing = [0, *self._owing[:-1]]
        return [self._private_task(worker, slot) for worker in workers]

    def _redo_or_code(self, slot: int, worker: int) -> Task | None:
        if self._owed[worker]:
            chunk = int(np.argmax(self._found[worker] < 0))
            self._redone[slot, worker] = chunk
            return self._private_task(worker, chunk)
        if not self.words:
            return None
        group = slot - self.layout.private
        chunks, coefficients = self.words[group].row(worker)
        return Task(self.job, tuple(self.layout.shared_chunk(group, chunk) for chunk in chunks), coefficients)

    def _private_task(self, worker: int, chunk: int) -> Task:
        return Task(self.job, (self.layout.private_chunk(worker, chunk),), (1.0,))

    def add(self, key: Key) -> None:
        """Takes the result of one slot; what is in already changes nothing."""
        chunk = self._private_of(key.slot, key.worker)
        if chunk is not None:
            self._add_private(key.worker, chunk, key.slot)
        elif self.words:
            reception = self.receptions[key.slot - self.layout.private]
            before = reception.complete
            reception.add(key.worker)
            self._unfinished -= reception.complete and not before

    def _private_of(self, slot: int, worker: int) -> int | None:
        """The private chunk that a slot of a worker brings; None when it brings a row of a group."""
        return slot if slot < self.layout.private else self._redone.get((slot, worker))

    def _add_private(self, worker: int, chunk: int, slot: int) -> None:
        if self._found[worker, chunk] >= 0:
            return
        self._found[worker, chunk] = slot
        self._missing -= 1
        owed = int(self._owed[worker])
        self._owed[worker] = owed - 1
        self._owing[owed] -= 1
        self._owing[owed - 1] += 1

    def recoverable(self) -> bool:
        """If nobody straggled from now on, would the slots still to come complete this job? Counts only."""
        passed = max(0, self._slots - self.layout.private)
        if any(self._owing[self.layout.burst - passed + 1 :]):
            return False
        if not all(reception.complete for reception in self.receptions[:passed]):
            return False
        return all(self._will_cover(group, group - passed) for group in range(passed, len(self.words)))

    def _will_cover(self, group: int, before: int) -> bool:
        """Do the workers that are free after `before` more redo slots suffice for the group?"""
        assert self.layout.code is not None
        free = sum(self._owing[: before + 1])
        if free >= self.layout.workers - self.layout.code.tolerance:
            return True
        return self.words[group].covers(self._owed <= before)

    def helpful(self, slot: int) -> list[int]:
        """Workers whose result in `slot`, already sent, is missing and of use."""
        chunks = ((worker, self._private_of(slot, worker)) for worker in range(self.layout.workers))
        private = {worker: chunk for worker, chunk in chunks if chunk is not None}
        redo = [worker for worker, chunk in private.items() if self._found[worker, chunk] < 0]
        if slot < self.layout.private or not self.words:
            return redo
        coded = self.receptions[slot - self.layout.private].helpful()
        return redo + [worker for worker in coded if worker not in private]

    def useful(self) -> list[Key]:
        """Results that the decode may use."""
        coded = [
            self._key(self.layout.private + group, worker)
            for group, reception in enumerate(self.receptions)
            for worker in reception.useful()
        ]
        return self._private_keys() + coded

    def place(self, key: Key) -> tuple[int, int] | None:
        """D1 by chunk, then each group by its code."""
        layout, chunk = self.layout, self._private_of(key.slot, key.worker)
        private = layout.workers * layout.private
        count = private + layout.groups * layout.chunks_per_group
        if chunk is not None:
            first = self._found[key.worker, chunk] == key.slot
            return (layout.private_chunk(key.worker, chunk), count) if first else None
        group = key.slot - layout.private
        found = self.receptions[group].place(key.worker)
        return None if found is None else (layout.shared_chunk(group, found[0]), count)

    def combine(self, estimate: bool) -> Decoding:
        """D1 with weight 1 and each group by its code; residual and amplification are the worst of the parts."""
        assert estimate or self._missing == 0, f"job {self.job}: {self._missing} private chunks are missing"
        parts = [reception.estimate() if estimate else reception.decode() for reception in self.receptions]
        weights = dict.fromkeys(self._private_keys(), 1.0)
        for group, part in enumerate(parts):
            weights |= {self._key(self.layout.private + group, worker): a for worker, a in part.weights.items()}
        return Decoding(
            weights,
            residual=max([float(self._missing > 0), *(part.residual for part in parts)]),
            amplification=max([1.0, *(part.amplification for part in parts)]),
            missing=self._missing_share(parts),
        )

    def _missing_share(self, parts: list[Combination]) -> float:
        """Squared error of the chunks' weights, each chunk counted by its size."""
        shared = sum(part.missing for part in parts) * self.layout.group_size
        return self._missing * self.layout.private_size + shared

    def _private_keys(self) -> list[Key]:
        """The results of D1 that are in, by chunk."""
        workers, chunks = np.nonzero(self._found >= 0)
        slots = self._found[workers, chunks]
        return list(map(Key, (self.job + slots).tolist(), workers.tolist(), slots.tolist()))

    def _key(self, slot: int, worker: int) -> Key:
        return Key(self.job + slot, worker, slot)
