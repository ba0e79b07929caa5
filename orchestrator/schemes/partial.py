"""`gc-partial`: gradient coding for partial stragglers: slow workers that do some of their work in time.

The batch is cut in (m+1) n equal parts. Worker i owns m of the first m n chunks alone, and takes part in an (n, s) code
over the rest. It sends two messages, in order: the sum over its own chunks, then its row of the code. Decodable iff all
n first messages are in, and second ones that the code decodes from. So nobody may fail altogether, but s workers may be
slower by the factor that lies between first and second message. m = 0 is `gc`.
L = (m + s + 1) / ((m + 1) n) cyclic, m / ((m + 1) n) + 1 / ((m + 1) (n // (s + 1))) fractional.

By hand, n = 3, m = 1, s = 1, cyclic: chunks 0, 1, 2 are private, 3, 4, 5 coded, a sixth of the batch each, L = 1/2.
Worker 2 is slow: its first message g_2 comes, its second does not. g = g_0 + g_1 + g_2 (first messages of all)
+ a_0 y_0 + a_1 y_1 (second ones of 0 and 1, with the cyclic code's weights).
Source: Tandon et al. 2017, section 4. Read next: `codes/cyclic.py`; how early messages travel: `orchestrator/ports.py`.
"""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import CODES, Code, Codeword, make_code
from gradmux.orchestrator.schemes.constraints import require_tolerance
from gradmux.orchestrator.schemes.facts import CodedFacts, FloatArray, IntArray, Sets
from gradmux.orchestrator.schemes.scheme import (
    Assignment,
    BoolArray,
    Context,
    Decoding,
    Key,
    Parameter,
    Params,
    Sample,
    Scheme,
    SchemeInfo,
    Slots,
    StragglerModel,
    Task,
)
from gradmux.orchestrator.schemes.stragglers import Covered, choose_model
from gradmux.orchestrator.schemes.synchronous import SynchronousScheme

PRIVATE, CODED = 0, 1
"""Slots, and messages, of every worker."""


class PartialJob:
    """What has been heard of one job: first messages by worker, second ones by the code."""

    def __init__(self, job: int, private: int, word: Codeword, workers: int, shared: int) -> None:
        """`shared`: chunks of the code."""
        self.job, self.word = job, word
        self.reception = word.reception()
        self._private, self._workers, self._shared = private, workers, shared
        """m, private chunks of each worker"""
        self.first: BoolArray = np.zeros(workers, dtype=np.bool_)
        """(workers,) whose first message is in; all of them, when no worker owes one"""
        if not private:
            self.first[:] = True

    @property
    def complete(self) -> bool:
        """All first messages, and enough second ones?"""
        return self.reception.complete and bool(self.first.all())

    def slots(self, worker: int) -> Slots:
        """First the private chunks, then the row of the code."""
        own = tuple(range(worker * self._private, (worker + 1) * self._private))
        chunks, coefficients = self.word.row(worker)
        shared = tuple(self._workers * self._private + chunk for chunk in chunks)
        private = Task(self.job, own, (1.0,) * self._private, message=PRIVATE) if own else None
        return private, Task(self.job, shared, coefficients, message=CODED)

    def add(self, key: Key) -> None:
        """Takes one message."""
        if key.slot == PRIVATE:
            self.first[key.worker] = True
        else:
            self.reception.add(key.worker)

    def helpful(self) -> list[int]:
        """Workers whose first message is missing, then those whose second would help."""
        silent = np.flatnonzero(~self.first).tolist()
        return silent + [worker for worker in self.reception.helpful() if self.first[worker]]

    def useful(self) -> list[Key]:
        """First messages by worker, then second ones."""
        return self._first_keys() + [self._key(worker, CODED) for worker in self.reception.useful()]

    def place(self, key: Key) -> tuple[int, int] | None:
        """First messages by worker, then second ones by the code."""
        first = self._workers if self._private else 0
        if key.slot == PRIVATE:
            return key.worker, first + self._shared
        found = self.reception.place(key.worker)
        return None if found is None else (first + found[0], first + self._shared)

    def combine(self, estimate: bool) -> Decoding:
        """Weight 1 for first messages, the code's weights for second ones."""
        silent = int(np.count_nonzero(~self.first))
        assert estimate or not silent, f"job {self.job}: {silent} first messages are missing"
        part = self.reception.estimate() if estimate else self.reception.decode()
        weights = dict.fromkeys(self._first_keys(), 1.0)
        weights |= {self._key(worker, CODED): weight for worker, weight in part.weights.items()}
        private = silent * self._private / self._workers
        return Decoding(
            weights,
            residual=max(part.residual, float(silent > 0)),
            amplification=max(1.0, part.amplification) if self._private else part.amplification,
            missing=(private + part.missing) / (self._private + 1),
        )

    def _first_keys(self) -> list[Key]:
        heard = np.flatnonzero(self.first).tolist() if self._private else []
        return [self._key(worker, PRIVATE) for worker in heard]

    def _key(self, worker: int, slot: int) -> Key:
        return Key(self.job, worker, slot)


class PartialStragglers(SynchronousScheme[PartialJob]):
    """One job per round, in two messages."""

    weights_known = True

    def __init__(self, private: int, code: Code, context: Context) -> None:
        own = np.full(context.workers * private, 1.0 / ((private + 1) * context.workers))
        shared = np.full(code.chunks, 1.0 / ((private + 1) * code.chunks))
        sizes = np.concatenate([own, shared])
        super().__init__("gc-partial", context, delay=0, chunk_sizes=sizes, binary=code.binary)
        self.private, self.code = private, code

    def assign(self, t: int) -> Assignment:
        """Everybody, both messages."""
        job = self._active[t] = PartialJob(t, self.private, self.code.draw(t), self.workers, self.code.chunks)
        return {worker: job.slots(worker) for worker in range(self.workers)}

    def heard(self, key: Key) -> None:
        """Counts for the job of its round, unless that is long over."""
        job = self._active.get(key.round)
        if job is not None:
            job.add(key)

    def wanted(self, t: int) -> tuple[int, ...]:
        """Whose messages would complete job t."""
        return tuple(self._active[t].helpful())

    def _recoverable(self, t: int) -> bool:
        """No job outlives its round."""
        return True

    def straggler_model(self, name: str) -> StragglerModel:
        """Every set that the code tolerates (any s, to begin with) and whose first messages are in."""
        covered = Covered(self.decodes_from)
        return choose_model(self.name, name, covered, covered)

    def decodes_from(self, answered: BoolArray) -> bool:
        """Would the open round decode from these workers' answers and the first messages that are in?"""
        job = self._active[self._closed]
        return bool((job.first | answered).all()) and job.word.covers(answered)


def build(params: Params, context: Context) -> Scheme:
    """Raises: ConfigError when m or s does not fit, or the code does not exist."""
    private, stragglers, kind = int(params["private"]), int(params["stragglers"]), str(params["code"])
    require_tolerance("gc-partial", stragglers, context.workers)
    if private < 0:
        raise ConfigError(f"gc-partial: m (private) = {private} must be at least 0; 0 is plain gc")
    return PartialStragglers(private, make_code(kind, context.workers, stragglers, context.seed), context)


class PartialFacts(CodedFacts):
    """m private chunks at each worker, and one row of the code."""

    def fits(self, sets: Sets) -> BoolArray:
        """m >= 0, 0 <= s < n."""
        return super().fits(sets) & (sets.ints("private") >= 0)

    def parts(self, sets: Sets) -> IntArray:
        """m n private chunks, and those of the code."""
        return sets.workers * sets.ints("private") + self.chunks(sets)

    def task_load(self, sets: Sets) -> FloatArray:
        """Of both messages: m of (m+1) n parts, and a row of the code over the last of m + 1 shares of the batch."""
        private = sets.ints("private")
        return (private / sets.workers + super().task_load(sets)) / (private + 1)


INFO = SchemeInfo(
    name="gc-partial",
    title="Gradient coding for partial stragglers: an uncoded message first, a coded one after it",
    build=build,
    parameters=(
        Parameter("private", "m", int, 1, "chunks that only one worker has, per worker"),
        Parameter("stragglers", "s", int, None, "workers whose second message may be missing"),
        Parameter("code", "code", str, "fractional", "the code of the second messages", CODES),
    ),
    constraints="m >= 0, 0 <= s < n",
    load="cyclic, dft: (m+s+1)/((m+1) n); fractional: m/((m+1) n) + 1/((m+1) (n // (s+1)))",
    delay="0",
    tolerates="any s per round that get their first message through; no worker that sends nothing",
    costs="less load than gc for the same s; one more message per worker and round",
    avoid="when slow workers are slow from the start (network, cold start) rather than in computing",
    source="Tandon, Lei, Dimakis, Karampatziakis 2017 (arXiv 1612.03301), section 4",
    example=(
        "n = 3, m = 1, s = 1, cyclic: six chunks, L = 1/2. Worker 2 sends g_2 but no second message: "
        "g = g_0 + g_1 + g_2 + a_0 y_0 + a_1 y_1."
    ),
    sample=Sample(3, {"m": 1, "s": 1, "code": "cyclic"}, late={0: (2,)}),
    facts=PartialFacts(),
)
