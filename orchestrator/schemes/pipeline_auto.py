"""`pipeline-auto`: the pipeline whose n, G and K follow the delays. Nothing to tune but how busy C may be.

Before each dispatch the scheme chooses by what all invocations have taken so far, those still in flight included
(`delay_estimate.py`), and by what time and calls are worth (`sizing.py`): n workers in G = n // (s+1) groups for one
step, where computing is dear; or, where a call is dear, K steps in a row on a few copies that each compute whole
batches, of which the first answer counts (a stretch, as in `stretch.py`). G is a power of two up to C/M and to P, the
number of passes of a batch, so that every group holds a whole number of the batch's chunks.

It begins with delays of elsewhere and with computing as it was tried before the run, where these are given. Otherwise
it begins with 3/4 of a model's share C/M, one step and several G, for the slope. Every 32nd job of one step tries a
neighbour of the best G, so that the estimate stays fresh.

The n workers of a job are those of all `workers` that have been fastest, dealt to the groups in rank order and back, so
that no group gets the slow ones. What is missing at twice the time of the first answer is invoked again, when there is
room: one worker of each uncovered group, at most twice.

By hand, 4 workers, C = 8, M = 2: a share of 4, up to 4 groups, 4 chunks. Job 0 starts with n = 3 in G = 2 groups, say
{1, 3} and {0}; each worker computes two chunks. 3 and 0 answer: g = g_{0,1} (of 3) + g_{2,3} (of 0).
A simulated run that is longer than its profile meets the same rows again and learns them by heart: it then looks better
than it is (`benchmarks/schemes_on_profiles.py` deals the columns anew each lap). Read next: `registry.py`.
"""

from __future__ import annotations

import math

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.asks import Backup, Call
from gradmux.orchestrator.schemes.delay_estimate import DelayEstimate, Delays
from gradmux.orchestrator.schemes.overlapping import OverlappingScheme
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    BoolArray,
    Context,
    Decoding,
    FloatArray,
    Key,
    Parameter,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.schemes.sizing import Bounds, Size, best_size
from gradmux.orchestrator.schemes.stragglers import Covered, choose_model

FIRST_JOBS = 4
"""at least so many jobs at first try different G"""
FIRST_GROUPS = (2, 4, 8, 2)
"""what the most G is divided by for these: for fewer groups the computing of a first job may take very long"""
TRY_EVERY = 32
"""jobs between two that try a neighbour of the best G"""
MOST_SHARES = 2
"""n is at most so many times C/M"""
MOST_COPIES = 6
"""of a stretch"""


class DealtJob:
    """One job: its groups, and who answered first in each."""

    def __init__(self, job: int, groups: list[list[int]], chunks: int, steps: int = 1) -> None:
        """`chunks`: of the whole batch; each group gets the same number of them. `steps`: K."""
        self.job, self.groups, self.steps = job, groups, steps
        self._chunks = chunks // len(groups)
        self._group = {worker: group for group, members in enumerate(groups) for worker in members}
        self._first: list[int | None] = [None] * len(groups)
        self.needed = len(groups)
        """groups that no worker has answered for"""

    def load(self, worker: int, chunk_sizes: FloatArray) -> float:
        """Batches that a worker processes, a fraction of one where the job is one step."""
        first = self._group[worker] * self._chunks
        return self.steps * float(chunk_sizes[first : first + self._chunks].sum())

    @property
    def complete(self) -> bool:
        """Has every group an answer?"""
        return self.needed == 0

    def tasks(self) -> Assignment:
        """The first worker of each group, then the second of each, and so on: the order in which they are invoked."""
        ranks = range(max(map(len, self.groups)))
        order = [members[rank] for rank in ranks for members in self.groups if rank < len(members)]
        return {worker: (self._task(self._group[worker]),) for worker in order}

    def _task(self, group: int) -> Task:
        chunks = tuple(range(group * self._chunks, (group + 1) * self._chunks))
        return Task(self.job, chunks, (1.0,) * self._chunks)

    def add(self, worker: int) -> None:
        """Takes an answer; only the first of its group counts."""
        group = self._group[worker]
        if self._first[group] is None:
            self._first[group] = worker
            self.needed -= 1

    def covers(self, answered: BoolArray) -> bool:
        """Has every group a member among `answered`?"""
        return all(answered[members].any() for members in self.groups)

    def wanted(self) -> list[int]:
        """The first worker of each group that no worker has answered for."""
        return [members[0] for members, first in zip(self.groups, self._first, strict=True) if first is None]

    def useful(self) -> list[Key]:
        """The first answer of each group, by group."""
        return [Key(self.job, worker, 0) for worker in self._first if worker is not None]

    def place(self, key: Key) -> tuple[int, int] | None:
        """The worker's group among all groups, when it was the first of them."""
        group = self._group[key.worker]
        return (group, len(self.groups)) if self._first[group] == key.worker else None

    def combine(self, estimate: bool) -> Decoding:
        """Weight 1 for each."""
        assert estimate or self.complete, f"job {self.job}: {self.needed} groups have no answer"
        weights = dict.fromkeys(self.useful(), 1.0)
        amplification = math.sqrt(len(weights) / len(self._group))
        return Decoding(weights, float(not self.complete), amplification, self.needed / len(self.groups))


class AutoPipeline(OverlappingScheme[DealtJob]):
    """`asks.Following`, `asks.BacksUp` and, where its jobs may have several steps, `asks.Stretches`."""

    weights_known = True

    backup = Backup(share=None, slack=1.0, times=2)

    def __init__(self, busy: float, context: Context) -> None:
        concurrency = context.concurrency or context.workers
        share = max(1, concurrency // context.models)
        most_groups = min(share, context.workers, context.passes or context.workers)
        groups = 1 << (most_groups.bit_length() - 1)
        most = min(MOST_SHARES * share, concurrency, context.workers)
        sizes = np.full(groups, 1.0 / groups)
        super().__init__("pipeline-auto", context, delay=0, chunk_sizes=sizes, binary=True)
        copies = min(MOST_COPIES, most)
        self.bounds = Bounds(context.models, concurrency, busy, most, groups, context.worth, copies)
        self._assigned = 0
        """jobs"""
        self._jobs, self._longest_s = context.jobs, context.longest_s
        self._next: Size | None = None
        """of the job that is assigned next"""
        self._seed = context.seed
        self._start = min(most, max(1, 3 * share // 4))
        self._estimate = DelayEstimate(context.workers, context.expected)

    def began(self, call: Call, at_s: float) -> None:
        """The invocation is on its way."""
        load = self._active[call.round].load(call.worker, self.chunk_sizes)
        self._estimate.began(call, load, at_s)

    def ended(self, call: Call, at_s: float, answered: bool) -> None:
        """It came back."""
        self._estimate.ended(call, at_s, answered)

    def stretch(self, model: int, left: int) -> int:
        """K, by what is known now."""
        self._next = self._sized(left, left)
        return self._next.steps

    def assign(self, t: int) -> Assignment:
        """As many of the fastest workers as pay, dealt to groups."""
        size = self._next or self._sized(max(1, math.ceil((self._jobs - t) / self.bounds.models)), 1)
        self._next, self._assigned = None, self._assigned + 1
        job = self._active[t] = DealtJob(t, self._deal(t, size), len(self.chunk_sizes), size.steps)
        return job.tasks()

    def _sized(self, left: int, most_steps: int) -> Size:
        """The best size, or one near it that tells more, for a model with so many steps left."""
        most, t = self.bounds.most_groups, self._assigned
        if not self._estimate.ready or (t < max(FIRST_JOBS, self.bounds.models) and not self._estimate.expects):
            groups = max(1, most // FIRST_GROUPS[t % len(FIRST_GROUPS)])
            return Size(max(self._start, groups), groups)
        delays = self._estimate.delays()
        size = best_size(delays, self.bounds, left, self._in_time(delays, most_steps))
        if size.steps > 1 or (t + 1) % TRY_EVERY:
            return size
        groups = size.groups * 2 if (t // TRY_EVERY) % 2 else size.groups // 2
        groups = min(max(1, groups), most, size.workers)
        return Size(size.workers, 1 << (groups.bit_length() - 1))

    def _in_time(self, delays: Delays, most: int) -> int:
        """K at most: no call is to last longer than `Context.longest_s`."""
        if delays.slope_s <= 0:
            return most
        return max(1, min(most, int((self._longest_s - delays.mean_s) / delays.slope_s)))

    def _deal(self, t: int, size: Size) -> list[list[int]]:
        """Groups of the fastest workers, fast and slow ones in each."""
        source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, t))))
        chosen = self._estimate.ranked(source.permutation(self.workers))[: size.workers].tolist()
        groups: list[list[int]] = [[] for _ in range(size.groups)]
        for rank, worker in enumerate(chosen):
            turn, place = divmod(rank, size.groups)
            groups[size.groups - 1 - place if turn % 2 else place].append(worker)
        return groups

    def heard(self, key: Key) -> None:
        """Counts for the job of its round, unless that is long over."""
        job = self._active.get(key.round)
        if job is not None:
            job.add(key.worker)

    def wanted(self, t: int) -> tuple[int, ...]:
        """One worker of each group of job t that no worker has answered for."""
        return tuple(self._active[t].wanted())

    def straggler_model(self, name: str) -> StragglerModel:
        """Every set that contains no whole group."""
        covered = Covered(self.decodes_from)
        return choose_model(self.name, name, covered, covered)

    def decodes_from(self, answered: BoolArray) -> bool:
        """Would the open round decode from exactly these workers?"""
        return self._active[self._closed].covers(answered)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when rho is out of range."""
    busy = float(params["busy"])
    if not 0 < busy <= 1:
        raise ConfigError(f"pipeline-auto: rho (busy) = {busy:g} is not a share of the concurrency: use 0 < rho <= 1")
    return AutoPipeline(busy, context)


INFO = SchemeInfo(
    name="pipeline-auto",
    title="The pipeline whose n, G and K follow the delays: split steps or stretches of them, whichever costs less",
    build=build,
    parameters=(Parameter("busy", "rho", float, 1.0, "share of the concurrency that it tries to keep busy"),),
    constraints="0 < rho <= 1",
    load="1/G, G a power of two up to C/M and P, chosen for each job",
    delay="0 (jobs of other models overlap: nothing waits)",
    tolerates="every set that contains no whole group; other groups are invoked again",
    costs="a few dozen jobs until it knows the delays; a worker's part is computed in up to C/M pieces",
    avoid="for runs of fewer than about 50 jobs, or when n and s are known from a tuned profile: pipeline",
    source="ours; delays by Kaplan and Meier 1958",
    example=(
        "4 workers, C = 8, M = 2: job 0 starts with n = 3 in groups {1, 3} and {0}, two of four chunks each; 3 and 0 "
        "answer, g = y_3 + y_0."
    ),
    sample=Sample(4, late={0: (1,)}, models=2, concurrency=8),
)
