"""`sr-sgc`: sequential gradient coding by selective repetition (Krishnan, Ebrahimi, Khisti 2023, section 3.2).

Each job has an (n, s) code, s = ceil(B lambda / (W-1+B)): fewer than the lambda stragglers that a round may have. In
round t, what job t-B still lacks is computed again by as many workers as it takes; all others work on job t. Job t
decodes from rounds t and t+B, so T = B. In the last B rounds the others idle; a round without repeats is empty.
Round t may follow when job t-1-B decodes and job t-1 does too, or at most lambda answers are missing. That is stricter
than that job t-1 could still be saved if no worker straggled from now on: repeats could save one that none answered.
Cyclic and dft codes: V are the workers without a result for job t-B, and the |V| - s lowest of them repeat.
Fractional codes: the lowest worker of each uncovered group repeats.

By hand, n = 4, B = 1, W = 2, lambda = 2: s = 1, cyclic, any 3 answers decode. Round 0: workers 1 and 2 straggle,
V = {1, 2}. Round 1: worker 1 repeats job 0, the others compute job 1. Job 0 decodes from 0 and 3 (of round 0) and 1 (of
round 1); job 1 has the answers of 0, 2 and 3, which suffice. Read next: `multiplexed.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradmux.orchestrator.schemes.codes import CODES, Code, make_code
from gradmux.orchestrator.schemes.constraints import (
    burst_divides,
    most_fits,
    require_burst,
    require_divides,
    require_max_stragglers,
    require_tolerance,
    window_fits,
)
from gradmux.orchestrator.schemes.facts import Facts, IntArray, Sets, Whole
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    BoolArray,
    Context,
    Key,
    Parameter,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    StragglerModel,
)
from gradmux.orchestrator.schemes.stragglers import Bursty, PerRound, choose_model
from gradmux.orchestrator.schemes.synchronous import CodedJob, SynchronousScheme


def tolerance_of(burst: Whole, window: Whole, max_stragglers: Whole) -> Whole:
    """s = ceil(B lambda / (W-1+B)): what each job's code has to tolerate, since the rest is repeated."""
    return -(-burst * max_stragglers // (window - 1 + burst))


def counts_stragglers(answered: BoolArray, late: IntArray, tolerance: int | IntArray) -> BoolArray:
    """Are a past round's stragglers remembered? `answered`: was a repeat? `late`: how many did not; of each round."""
    found: BoolArray = answered | (late > tolerance)
    return found


class SelectiveRepeat(SynchronousScheme[CodedJob]):
    """SR-SGC over any code."""

    weights_known = True

    def __init__(self, burst: int, window: int, max_stragglers: int, code: Code, context: Context) -> None:
        sizes = np.full(code.chunks, 1.0 / code.chunks)
        super().__init__("sr-sgc", context, delay=burst, chunk_sizes=sizes, binary=code.binary)
        self.burst, self.window, self.max_stragglers, self.code = burst, window, max_stragglers, code
        self._repeaters: dict[int, frozenset[int]] = {}
        """by round, while it matters: the workers that work on job t-B in round t"""
        self._awaited: set[int] = set()
        """workers of the latest round that have not answered"""
        self._latest = -1

    def assign(self, t: int) -> Assignment:
        """Repeats where job t-B needs them, job t elsewhere; idle workers are left out."""
        if t < self.jobs:
            self._active[t] = CodedJob(t, self.code.draw(t))
        self._latest = t
        self._repeaters[t] = self._choose_repeaters(t - self.burst)
        self._repeaters.pop(t - self.burst - 2, None)
        workers = range(self.workers) if t < self.jobs else sorted(self._repeaters[t])
        self._awaited = set(workers)
        return {worker: (self._active[self._job_of(t, worker)].task(worker),) for worker in workers}

    def _choose_repeaters(self, job: int) -> frozenset[int]:
        """The fewest workers that complete `job`, lowest first."""
        if job < 0:
            return frozenset()
        reception = self._active[job].reception
        return frozenset(reception.helpful()[: reception.needed])

    def _job_of(self, t: int, worker: int) -> int:
        """What `worker` computes in round t."""
        return t - self.burst if worker in self._repeaters.get(t, ()) else t

    def _serves(self, key: Key) -> int:
        return self._job_of(key.round, key.worker)

    def heard(self, key: Key) -> None:
        """Counts for the job that this worker computed in that round, unless it is long over."""
        if key.round == self._latest:
            self._awaited.discard(key.worker)
        job = self._active.get(self._serves(key))
        if job is not None:
            job.add(key)

    def wanted(self, t: int) -> tuple[int, ...]:
        """In the latest round: the repeaters that the due job needs, then who would help job t."""
        helpful = [
            worker
            for job in (t - self.burst, t)
            if job in self._active
            for worker in self._active[job].reception.helpful()
            if worker in self._awaited and self._job_of(t, worker) == job
        ]
        return tuple(helpful)

    def _recoverable(self, t: int) -> bool:
        """Is job t-1 complete, or does its round miss at most lambda answers?

        Repeats alone could save a job that no worker has answered, but only by taking all workers from the next one,
        and so on for ever. The limit lambda holds no conforming pattern up.
        """
        latest = self._active.get(t - 1)
        return latest is None or latest.complete or len(self._awaited) <= self.max_stragglers

    def straggler_model(self, name: str) -> StragglerModel:
        """bursty: the published rule; arbitrary: s per round; either: one of them throughout."""
        bursty = PublishedBursty(self, self._repeating)
        return choose_model(self.name, name, bursty, PerRound(self.code.tolerance))

    def _repeating(self) -> BoolArray:
        """(workers,) who repeats in the open round."""
        mask = np.zeros(self.workers, dtype=np.bool_)
        mask[list(self._repeaters[self._closed])] = True
        return mask


class PublishedBursty(Bursty):
    """The rule of the authors' simulator: (B, W, lambda)-bursty, except that some past rounds count no stragglers.

    A past round is exempt when no repeat was answered in it and it had at most s stragglers: its job decodes anyhow.
    """

    def __init__(self, scheme: SelectiveRepeat, repeating: Callable[[], BoolArray]) -> None:
        super().__init__(scheme.burst, scheme.window, scheme.max_stragglers, scheme.workers)
        self._tolerance = scheme.code.tolerance
        self._repeating = repeating
        """(workers,) who repeats in the open round"""

    def commit(self, late: BoolArray) -> None:
        """Remembers the round's stragglers, none if it is exempt."""
        answered, missing = np.array((self._repeating() & ~late).any()), np.array(np.count_nonzero(late))
        counts = counts_stragglers(answered, missing, self._tolerance)
        super().commit(late & counts)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when B, W, lambda and n do not fit together."""
    burst, window = int(params["burst"]), int(params["window"])
    max_stragglers, kind = int(params["max_stragglers"]), str(params["code"])
    require_burst("sr-sgc", burst, window)
    require_divides("sr-sgc", burst, window)
    require_max_stragglers("sr-sgc", max_stragglers, context.workers)
    stragglers = tolerance_of(burst, window, max_stragglers)
    require_tolerance("sr-sgc", stragglers, context.workers)
    code = make_code(kind, context.workers, stragglers, context.seed)
    return SelectiveRepeat(burst, window, max_stragglers, code, context)


class RepeatFacts(Facts):
    """A weak code, and T = B."""

    def fits(self, sets: Sets) -> BoolArray:
        """1 <= B <= W - 1, B divides W - 1, 0 <= lambda <= n, s < n."""
        burst, window = np.maximum(sets.ints("burst"), 1), sets.ints("window")
        pair = window_fits(sets.ints("burst"), window) & burst_divides(burst, window)
        most: BoolArray = most_fits(sets.ints("max_stragglers"), sets.workers)
        return pair & most & (tolerance_of(burst, np.maximum(window, 2), sets.ints("max_stragglers")) < sets.workers)

    def tolerance(self, sets: Sets) -> IntArray:
        """ceil(B lambda / (W-1+B))."""
        return tolerance_of(sets.ints("burst"), sets.ints("window"), sets.ints("max_stragglers"))

    def delay(self, sets: Sets) -> IntArray:
        """B."""
        return sets.ints("burst")


INFO = SchemeInfo(
    name="sr-sgc",
    title="Sequential gradient coding, selective repetition: a weak code, and repeats B rounds later",
    build=build,
    parameters=(
        Parameter("burst", "B", int, None, "rounds in a row that a worker may straggle"),
        Parameter("window", "W", int, None, "rounds over which stragglers are counted"),
        Parameter("max_stragglers", "lambda", int, None, "distinct stragglers in a window"),
        Parameter("code", "code", str, "fractional", "the code of each job", CODES),
    ),
    constraints="1 <= B <= W - 1, B divides W - 1, 0 <= lambda <= n, s = ceil(B lambda / (W - 1 + B)) < n",
    load="fractional: 1/(n // (s+1)); cyclic, dft: (s+1)/n",
    delay="B",
    tolerates="(B, W, lambda)-bursty, or s per round",
    costs=(
        "less load than gc for the same lambda; needs B + 1 models; repeats take workers from later jobs, so a round "
        "also waits until its own job decodes or at most lambda answers are missing"
    ),
    avoid="with fewer than B + 1 models, or stragglers that persist from round to round",
    source="Krishnan, Ebrahimi, Khisti 2023 (arXiv 2211.13802), SR-SGC",
    example=(
        "n = 4, (B, W, lambda) = (1, 2, 2), cyclic: s = 1. Workers 1 and 2 straggle in round 0; worker 1 repeats job 0 "
        "in round 1, while 0, 2 and 3 compute job 1, which any three answers decode."
    ),
    sample=Sample(4, {"B": 1, "W": 2, "lambda": 2, "code": "cyclic"}, rounds=3, late={0: (1, 2)}, models=2),
    facts=RepeatFacts(),
)
