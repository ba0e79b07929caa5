"""`even-odd`: workers in a ring, each sends its chunk and the next; the even ones cover everything, and so do the odd.

n workers, n even, n chunks: worker i sends g_i + g_(i+1 mod n). So g is the sum of all even workers' answers, and that
of all odd ones'. Any number of stragglers is tolerated as long as they are all of one kind. Load 2/n, delay 0.

By hand, n = 4: y_0 = g_0 + g_1, y_1 = g_1 + g_2, y_2 = g_2 + g_3, y_3 = g_3 + g_0. Workers 1 and 3 straggle:
g = y_0 + y_2.
"""

from __future__ import annotations

import math

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    BoolArray,
    Context,
    Decoding,
    Key,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.schemes.stragglers import Covered, choose_model
from gradmux.orchestrator.schemes.synchronous import SynchronousScheme


class RingJob:
    """One job: who has answered. Predicates count; only `combine` computes."""

    def __init__(self, job: int, workers: int) -> None:
        self.job, self.workers = job, workers
        self.heard: set[int] = set()

    def chunks(self, worker: int) -> tuple[int, int]:
        return worker, (worker + 1) % self.workers

    def lacking(self) -> list[int]:
        """Whom the kind that lacks the fewest still lacks."""
        kinds = [[w for w in range(kind, self.workers, 2) if w not in self.heard] for kind in (0, 1)]
        return min(kinds, key=len)

    @property
    def complete(self) -> bool:
        return not self.lacking()

    def useful(self) -> list[Key]:
        return [Key(self.job, worker, 0) for worker in sorted(self.heard)]

    def combine(self, estimate: bool) -> Decoding:
        """Weight 1 for the kind that is there; least squares when a deadline has passed without one."""
        weights = dict.fromkeys(self.useful(), 1.0) if estimate else self._one_kind()
        rows = np.zeros((len(weights), self.workers))
        for row, key in zip(rows, weights, strict=True):
            row[list(self.chunks(key.worker))] += 1.0
        if estimate:
            best = np.linalg.lstsq(rows.T, np.ones(self.workers), rcond=None)[0]
            weights = dict(zip(weights, best.tolist(), strict=True))
        factors = np.array(list(weights.values()))
        error = factors @ rows - 1.0
        norm = math.sqrt(float(np.sum(factors**2 * np.sum(rows**2, axis=1))) / self.workers)
        return Decoding(weights, float(np.abs(error).max()), norm, float(np.mean(error**2)))

    def _one_kind(self) -> dict[Key, float]:
        assert self.complete, f"job {self.job} lacks workers {self.lacking()}"
        kind = 0 if self.heard.issuperset(range(0, self.workers, 2)) else 1
        return {Key(self.job, worker, 0): 1.0 for worker in range(kind, self.workers, 2)}


class EvenOdd(SynchronousScheme[RingJob]):
    """One job per round: `SynchronousScheme` does the bookkeeping of rounds and jobs."""

    def __init__(self, context: Context) -> None:
        sizes = np.full(context.workers, 1.0 / context.workers)
        super().__init__("even-odd", context, delay=0, chunk_sizes=sizes, binary=True)

    def assign(self, t: int) -> Assignment:
        job = self._active[t] = RingJob(t, self.workers)
        return {worker: (Task(t, job.chunks(worker), (1.0, 1.0)),) for worker in range(self.workers)}

    def heard(self, key: Key) -> None:
        job = self._active.get(key.round)
        if job is not None:
            job.heard.add(key.worker)

    def wanted(self, t: int) -> tuple[int, ...]:
        return tuple(self._active[t].lacking())

    def straggler_model(self, name: str) -> StragglerModel:
        one_kind = Covered(self._decodes_from)
        return choose_model(self.name, name, one_kind, one_kind)

    def _decodes_from(self, answered: BoolArray) -> bool:
        return bool(answered[0::2].all() or answered[1::2].all())

    def _recoverable(self, t: int) -> bool:
        return True


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when n is odd."""
    if context.workers % 2:
        raise ConfigError(f"even-odd: {context.workers} workers make no ring of pairs: use {context.workers + 1}")
    return EvenOdd(context)


INFO = SchemeInfo(
    name="even-odd",
    title="A ring of pairs: the even workers cover the batch, and so do the odd ones",
    build=build,
    parameters=(),
    constraints="n even",
    load="2/n",
    delay="0",
    tolerates="any stragglers that are all even or all odd",
    costs="twice the work of uncoded",
    avoid="when slow workers are neighbours: one even and one odd straggler hold the round up",
    source="an example",
    example="n = 4: y_0 = g_0 + g_1, y_2 = g_2 + g_3; workers 1 and 3 straggle, g = y_0 + y_2.",
    sample=Sample(4, late={0: (1, 3), 1: (0,)}),
)
