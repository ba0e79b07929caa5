"""`m-sgc`: sequential gradient coding by multiplexing (Krishnan, Ebrahimi, Khisti 2023, section 3.3).

Every worker has W-1+B slots a round; slot m of round t serves job t-m, so a job lives for W-1+B rounds and T = W-2+B.
The batch of a job is cut in two parts. D1: n (W-1) private chunks, W-1 per worker, uncoded: slot m <= W-2 computes the
worker's chunk m. D2: B groups, each under its own (n, lambda) code: slot W-1+b computes the worker's row of group b,
unless one of its private chunks is still missing: then it redoes the first of those instead. Few stragglers thus cost
nothing but D2, which is small. Decodable iff all of D1 is in and every D2 group decodes.

Sizes, with l the load of one group ((lambda+1)/n cyclic, 1/(n // (lambda+1)) fractional): a group is
y = 1/(B + n (W-1) l) of the batch, a private chunk l y, so that all slots are equal. With lambda = n there is no D2.

By hand, n = 2, (B, W, lambda) = (1, 2, 1): two slots, T = 1; one group under (2, 1), l = 1, y = 1/3: chunks 0 and 1 are
private, chunk 2 is shared, 1/3 of the batch each, L = 2/3. Worker 1 straggles in round 0. In round 1 it redoes chunk 1
of job 0 in slot 1, where worker 0 computes chunk 2; with y(round, worker, slot) the results,
g = y(0, 0, 0) + y(1, 1, 1) + y(1, 0, 1). With no worker late both compute chunk 2, and either answer will do.
Read next: `multiplexed_job.py`, then `registry.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradmux.orchestrator.schemes.codes import CODES, Code, make_code
from gradmux.orchestrator.schemes.constraints import most_fits, require_burst, require_max_stragglers, window_fits
from gradmux.orchestrator.schemes.facts import BoolArray, Facts, FloatArray, IntArray, Sets, code_chunks, code_load
from gradmux.orchestrator.schemes.multiplexed_job import Layout, MultiplexedJob, group_size, slot_count
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    Context,
    Key,
    Parameter,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.schemes.stragglers import Arbitrary, Bursty, choose_model
from gradmux.orchestrator.schemes.synchronous import SynchronousScheme


class Multiplexed(SynchronousScheme[MultiplexedJob]):
    """M-SGC over any code; `code` is None when lambda = n."""

    weights_known = True

    def __init__(self, burst: int, window: int, max_stragglers: int, code: Code | None, context: Context) -> None:
        self.burst, self.window, self.max_stragglers, self.code = burst, window, max_stragglers, code
        self.layout = Layout(context.workers, burst, window, code)
        super().__init__(
            "m-sgc",
            context,
            delay=slot_count(burst, window) - 1,
            chunk_sizes=self.layout.chunk_sizes(),
            binary=code is None or code.binary,
        )

    def assign(self, t: int) -> Assignment:
        """Slot m of every worker serves job t - m; workers without any task are left out, unless all are without.

        A round without tasks (lambda = n, at the end) has its turn where idle workers are invoked: all slots are None.
        """
        if t < self.jobs:
            self._active[t] = MultiplexedJob(t, self.layout)
        columns: list[list[Task | None]] = [[None] * self.workers for _ in range(self.delay + 1)]
        for slot, job in self._serving(t):
            columns[slot] = job.dispatch(slot)
        rows = dict(enumerate(zip(*columns, strict=True)))
        return {worker: row for worker, row in rows.items() if any(task is not None for task in row)} or rows

    def _serving(self, t: int) -> Iterator[tuple[int, MultiplexedJob]]:
        """The slots of round t that serve a job, and that job; the oldest job first."""
        for slot in range(self.delay, -1, -1):
            if t - slot in self._active:
                yield slot, self._active[t - slot]

    def _serves(self, key: Key) -> int:
        return key.round - key.slot

    def heard(self, key: Key) -> None:
        """Counts for the job of its slot, unless that is long over."""
        job = self._active.get(self._serves(key))
        if job is not None:
            job.add(key)

    def wanted(self, t: int) -> tuple[int, ...]:
        """Workers with a missing result in round t; first those without whom a job would fail, oldest job first."""
        serving = list(self._serving(t))
        lost = [entry for entry in serving if self._lost(*entry)]
        kept = [entry for entry in serving if not self._lost(*entry)]
        return tuple(dict.fromkeys(worker for slot, job in lost + kept for worker in job.helpful(slot)))

    def _lost(self, slot: int, job: MultiplexedJob) -> bool:
        return not (job.complete if slot == self.delay else job.recoverable())

    def _recoverable(self, t: int) -> bool:
        """Every job that is due in round t or later; the newest first, since it most often is not."""
        return all(
            self._active[job].recoverable() for job in range(min(t, self.jobs) - 1, max(t - self.delay, 0) - 1, -1)
        )

    def straggler_model(self, name: str) -> StragglerModel:
        """bursty: (B, W, lambda); arbitrary: (B, W+B-1, lambda); either: one of them throughout."""
        bursty = Bursty(self.burst, self.window, self.max_stragglers, self.workers)
        longer = slot_count(self.burst, self.window)
        return choose_model(self.name, name, bursty, Arbitrary(self.burst, longer, self.max_stragglers, self.workers))


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when B, W, lambda and n do not fit together."""
    burst, window = int(params["burst"]), int(params["window"])
    max_stragglers, kind = int(params["max_stragglers"]), str(params["code"])
    require_burst("m-sgc", burst, window)
    require_max_stragglers("m-sgc", max_stragglers, context.workers)
    coded = max_stragglers < context.workers  # lambda = n: there is no D2
    code = make_code(kind, context.workers, max_stragglers, context.seed) if coded else None
    return Multiplexed(burst, window, max_stragglers, code, context)


class MultiplexedFacts(Facts):
    """D1 uncoded, D2 under (n, lambda) codes; no D2 with lambda = n. The first and the last rounds serve fewer jobs."""

    even = False

    def fits(self, sets: Sets) -> BoolArray:
        """1 <= B <= W - 1, 0 <= lambda <= n."""
        pair: BoolArray = window_fits(sets.ints("burst"), sets.ints("window"))
        return pair & most_fits(sets.ints("max_stragglers"), sets.workers)

    def tolerance(self, sets: Sets) -> IntArray:
        """lambda."""
        return sets.ints("max_stragglers")

    def chunks(self, sets: Sets) -> IntArray:
        """Those of a D2 group, 0 where there is none."""
        return np.where(self._coded(sets), code_chunks(sets.code, sets.workers, self._in_code(sets)), 0)

    def parts(self, sets: Sets) -> IntArray:
        """n (W-1) private chunks, and those of B groups."""
        return sets.workers * (sets.ints("window") - 1) + sets.ints("burst") * self.chunks(sets)

    def task_load(self, sets: Sets) -> FloatArray:
        """l y; with lambda = n a private chunk of n (W-1)."""
        private = (sets.ints("window") - 1).astype(np.float64)
        load = code_load(sets.code, sets.workers, self._in_code(sets))
        coded = load * group_size(sets.workers, sets.ints("burst").astype(np.float64), private, load)
        return np.where(self._coded(sets), coded, 1.0 / (sets.workers * private))

    def slots(self, sets: Sets) -> IntArray:
        """W-1+B."""
        return slot_count(sets.ints("burst"), sets.ints("window"))

    def delay(self, sets: Sets) -> IntArray:
        """W-2+B."""
        return self.slots(sets) - 1

    def _coded(self, sets: Sets) -> BoolArray:
        return sets.ints("max_stragglers") < sets.workers

    def _in_code(self, sets: Sets) -> IntArray:
        """lambda, as far as a code may have it."""
        return np.minimum(sets.ints("max_stragglers"), sets.workers - 1)


INFO = SchemeInfo(
    name="m-sgc",
    title="Sequential gradient coding, multiplexing: little coded data, and private data redone later",
    build=build,
    parameters=(
        Parameter("burst", "B", int, None, "rounds in a row that a worker may straggle"),
        Parameter("window", "W", int, None, "rounds over which stragglers are counted"),
        Parameter("max_stragglers", "lambda", int, None, "distinct stragglers in a window"),
        Parameter("code", "code", str, "fractional", "the code of the shared part", CODES),
    ),
    constraints="1 <= B <= W - 1, 0 <= lambda <= n",
    load=(
        "(W-1+B) l / (B + n (W-1) l), l = 1/(n // (lambda+1)) fractional, (lambda+1)/n cyclic and dft; "
        "lambda = n: (W-1+B) / (n (W-1))"
    ),
    delay="W - 2 + B",
    tolerates="(B, W, lambda)-bursty, or (B, W+B-1, lambda)-arbitrary",
    costs="the least load for many stragglers; needs W - 1 + B models side by side; W - 1 + B tasks per invocation",
    avoid="with fewer than W - 1 + B models, or workers that straggle more than B times in W - 1 + B rounds",
    source="Krishnan, Ebrahimi, Khisti 2023 (arXiv 2211.13802), M-SGC",
    example=(
        "n = 2, (B, W, lambda) = (1, 2, 1): chunks 0 and 1 private, chunk 2 shared, L = 2/3. Worker 1 straggles in "
        "round 0; in round 1 it redoes chunk 1 of job 0 while worker 0 computes chunk 2."
    ),
    sample=Sample(4, {"B": 1, "W": 2, "lambda": 1}, rounds=3, late={0: (1,)}, models=2),
    facts=MultiplexedFacts(),
)
