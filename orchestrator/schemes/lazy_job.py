"""One gradient under a lazy scheme: some shards are computed anew, the others stand as they were last sent.

`Shards` is the fixed layout (which workers hold which shard, under which inner code), `LazyJob` what was heard of one
job. Knows no triggers. Read next: `lazy.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gradmux.orchestrator.schemes.codes import Code, Codeword, FractionalCode, make_code
from gradmux.orchestrator.schemes.scheme import Decoding, FloatArray, Key, Skip, Task


@dataclass(frozen=True, slots=True)
class Sent:
    """What the orchestrator holds of one shard: the results whose sum is its gradient at the weights of `job`."""

    job: int
    weights: Mapping[Key, float]
    residual: float
    amplification: float


class Shards:
    """M_s equal shards, each held by its own run of workers under an inner code; the same for every job."""

    def __init__(self, workers: int, count: int, stragglers: int | None, code: str, seed: int) -> None:
        """`stragglers`: s of the inner (n_q, s) codes; None: every worker of a shard computes all of it."""
        small, larger = divmod(workers, count)
        sizes = [small + (q < larger) for q in range(count)]
        self.count, self.workers = count, workers
        self.first = np.cumsum([0, *sizes]).tolist()
        """(count + 1,) where each shard's workers begin"""
        self.codes: list[Code] = [_inner_code(size, stragglers, code, seed) for size in sizes]
        self.words: list[Codeword] = [inner.draw(q) for q, inner in enumerate(self.codes)]
        self.first_chunk = np.cumsum([0, *(inner.chunks for inner in self.codes)]).tolist()
        self.owner = [q for q, size in enumerate(sizes) for _ in range(size)]
        """(workers,) shard of each worker"""

    def chunk_sizes(self) -> FloatArray:
        """(chunks,) fractions of the batch: a shard is 1/M_s, cut evenly by its inner code."""
        return np.concatenate([np.full(inner.chunks, 1.0 / (self.count * inner.chunks)) for inner in self.codes])

    def members(self, shard: int) -> range:
        """The workers that hold `shard`."""
        return range(self.first[shard], self.first[shard + 1])

    def task(self, job: int, worker: int, skip: Skip | None) -> Task:
        """What `worker` computes of its shard."""
        shard = self.owner[worker]
        chunks, coefficients = self.words[shard].row(worker - self.first[shard])
        start = self.first_chunk[shard]
        return Task(job, tuple(start + c for c in chunks), coefficients, skip=skip)


class LazyJob:
    """What was heard of one job. `asked`: the shards that are computed anew; all others stand in `sent`."""

    def __init__(self, job: int, shards: Shards, asked: Iterable[int], sent: dict[int, Sent]) -> None:
        self.job, self.shards, self.sent = job, shards, sent
        self.receptions = {q: shards.words[q].reception() for q in asked}
        self.unchanged: set[int] = set()
        """asked shards whose worker had nothing new"""
        self._round: dict[int, int] = {}

    @property
    def complete(self) -> bool:
        """Is every asked shard there, or known to be unchanged?"""
        return all(q in self.unchanged or reception.complete for q, reception in self.receptions.items())

    def add(self, key: Key) -> None:
        """Takes an answer; the first of each worker counts."""
        shard = self.shards.owner[key.worker]
        if key.worker not in self._round:
            self._round[key.worker] = key.round
            self.receptions[shard].add(key.worker - self.shards.first[shard])

    def place(self, key: Key) -> None:
        """Results are held for later jobs."""
        return None

    def fresh(self) -> dict[int, Sent]:
        """Shard -> its new gradient, for the asked shards that did change and decode."""
        found = {}
        for shard, reception in self.receptions.items():
            if shard not in self.unchanged and reception.complete:
                combination = reception.decode()
                first = self.shards.first[shard]
                weights = {Key(self._round[first + w], first + w, 0): a for w, a in combination.weights.items()}
                found[shard] = Sent(self.job, weights, combination.residual, combination.amplification)
        return found

    def useful(self) -> list[Key]:
        """New results that the decode may use, and the old ones of the shards that are not new yet."""
        fresh = [
            Key(self._round[self.shards.first[q] + w], self.shards.first[q] + w, 0)
            for q, reception in self.receptions.items()
            for w in reception.useful()
        ]
        return fresh + [key for sent in self.sent.values() for key in sent.weights]

    def combine(self, estimate: bool) -> Decoding:
        """The sum over shards of what stands for each: the new gradient, or the one last sent.

        Residual and amplification are the worst of the shards, old ones included.
        """
        fresh = self.fresh()
        standing = self.sent | fresh
        assert estimate or len(standing) == self.shards.count, f"job {self.job} lacks a shard"
        weights = {key: a for q in sorted(standing) for key, a in standing[q].weights.items()}
        stale = sum(q not in fresh for q in self.receptions if q not in self.unchanged)
        return Decoding(
            weights,
            residual=max([float(len(standing) < self.shards.count), *(each.residual for each in standing.values())]),
            amplification=max((each.amplification for each in standing.values()), default=1.0),
            missing=stale / self.shards.count,
        )


def _inner_code(size: int, stragglers: int | None, code: str, seed: int) -> Code:
    if stragglers is None or stragglers == size - 1:
        return FractionalCode(size, size - 1, seed, redraw=False)
    return make_code(code, size, stragglers, seed)


def reach(history: int, models: int, job: int) -> list[tuple[int, int]]:
    """The pairs of jobs (newer, older) whose weights differ by the last `history` steps of the model of `job`."""
    steps = min(history, math.floor(job / models))
    return [(job - (d - 1) * models, job - d * models) for d in range(1, steps + 1)]
