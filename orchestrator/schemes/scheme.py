"""What a scheme is: who computes what in each round, which answers suffice, and how to combine them.

A scheme is a pure object: numpy in, numbers out. It never sees a tensor, a clock, a fleet or a file; every decode is a
linear combination of results. The same object serves the simulator, the emulator and AWS.

The life of one round, as the loop plays it::

    tasks = scheme.assign(t)           # once, when round t is dispatched; rounds may overlap if the scheme says so
    scheme.heard(key)                  # each result as it arrives, late ones too
    scheme.decodable(job)              # asked often: must only count
    scheme.decode(job)                 # once per job: weights by key, residual, amplification
    scheme.end_round(t)                # once, when round t closes: what is missing now is missing

Units: loads and chunk sizes are fractions of one batch. Read next: `codes/code.py`, then `multiplexed.py`, the richest
scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradmux.orchestrator.schemes.facts import Facts
from gradmux.orchestrator.schemes.worth import WORTH, Worth

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]


MAX_RESIDUAL = 1e-6
"""A decode that misses the all-ones row by more than this is refused: the scheme is wrong, or its code too ill
conditioned for float64."""


class Key(NamedTuple):
    """Names one result: the answer of `worker` in `round` for its task in `slot`.

    Attempts share the key: they are equal.
    """

    round: int
    worker: int
    slot: int


@dataclass(frozen=True, slots=True)
class Skip:
    """Lazy schemes: the worker need not answer when its gradient has hardly changed.

    It answers "skipped" iff the squared distance between its gradient at the weights of this task's job and at those of
    job `reference` is at most `threshold` (LAG-WK, Chen et al. 2018, eq. 8a).
    """

    reference: int
    threshold: float


@dataclass(frozen=True, slots=True)
class Task:
    """One linear combination of chunk gradients: sum over c of coefficients[c] * gradient of chunks[c], for one job."""

    job: int
    chunks: tuple[int, ...]
    coefficients: tuple[float, ...]
    message: int = 0
    """Which of the worker's answers carries it, in order (0 unless the scheme uses partial stragglers)."""
    skip: Skip | None = None

    def load(self, chunk_sizes: FloatArray) -> float:
        """Fraction of one batch that this task processes; twice, when it also looks at the reference's weights."""
        return float(sum(chunk_sizes[c] for c in self.chunks)) * (1 if self.skip is None else 2)


Slots: TypeAlias = tuple[Task | None, ...]
Assignment: TypeAlias = Mapping[int, Slots]
"""Worker -> its tasks by slot. A worker that is not in the mapping (or has only None) is idle and is not invoked.

Workers are invoked in the order of the mapping."""


def loads_by_message(slots: Slots, chunk_sizes: FloatArray) -> tuple[float, ...]:
    """Fraction of one batch that a worker has processed when it sends each of its messages, in order; (0,) if idle."""
    tasks = [task for task in slots if task is not None]
    messages = sorted({task.message for task in tasks})
    parts = (sum(task.load(chunk_sizes) for task in tasks if task.message == message) for message in messages)
    return tuple(accumulate(parts)) or (0.0,)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to combine results into one job's gradient sum: sum over keys of weights[key] * result[key].

    The order of `weights` is canonical (by chunk, not by arrival), so that sums over it do not depend on who was first.
    """

    weights: Mapping[Key, float]
    residual: float
    """max over chunks of |sum_i a_i B[i, chunk] - 1|; 0 for an exact decode up to rounding."""
    amplification: float
    """sqrt(sum_i a_i^2 ||B_i||^2 / n): how much rounding noise of the results grows."""
    missing: float = 0.0
    """||a^T B - 1||^2 / chunks: the share of the gradient that is missing (approximate decodes only)."""


class Distances(Protocol):
    """What a lazy scheme may ask about weights; answered by the trainer, recorded, replayed by the simulator."""

    def weights(self, job: int, other: int) -> float:
        """Squared Euclidean distance between the weights that `job` and `other` (of one model) start from."""
        ...

    def gradients(self, one: Mapping[Key, float], other: Mapping[Key, float]) -> float:
        """Squared Euclidean distance between two sums of weight * result, over results that are all kept."""
        ...


class StragglerModel(Protocol):
    """A declared set of straggler patterns; the papers' wait rule closes a round only on a pattern inside it."""

    def admits(self, late: BoolArray) -> bool:
        """Would the pattern stay inside the model if exactly `late` (workers,) straggle in the current round?"""
        ...

    def commit(self, late: BoolArray) -> None:
        """The current round closed with stragglers `late`; the next round is now the current one."""
        ...


class Scheme(Protocol):
    """One run of one scheme over `jobs` gradients. Rounds and jobs count from 0."""

    @property
    def name(self) -> str: ...
    @property
    def workers(self) -> int:
        """n, logical workers 0..n-1."""
        ...

    @property
    def jobs(self) -> int:
        """J, gradients to decode."""
        ...

    @property
    def rounds(self) -> int:
        """R, rounds to play: J + T for the round-synchronous schemes."""
        ...

    @property
    def delay(self) -> int:
        """T: job t starts in round t and is decoded by the end of round t + T. Needs M >= T + 1 models."""
        ...

    @property
    def exact(self) -> bool:
        """False when decodes may be estimates (`fastest-k`, `agc`); else one beyond MAX_RESIDUAL ends the run."""
        ...

    @property
    def overlapping(self) -> bool:
        """True when rounds do not wait for each other: round t goes out when its job's model is ready (`pipeline`)."""
        ...

    @property
    def binary(self) -> bool:
        """True when all coefficients and weights are 0 or 1, so that results may travel as float16."""
        ...

    @property
    def chunk_sizes(self) -> FloatArray:
        """(chunks,) fractions of the batch, sum 1; the same for every job.

        Where P is known they are set anew, as multiples of 1/P, before the scheme is used; then some may be 0.
        """
        ...

    @property
    def reuses_results(self) -> bool:
        """True when decodes may use earlier jobs' results (lazy schemes): a chunk is then the same rows every time."""
        ...

    def assign(self, t: int) -> Assignment:
        """The tasks of round t, given what was heard until now. Called once per round, when it is dispatched.

        Idle workers are left out, and a round that leaves out all of them takes no time. One in which all slots of all
        workers are None takes its time as well where idle workers are invoked (`Limits.invoke_idle`).
        """
        ...

    def heard(self, key: Key) -> None:
        """The result `key` has arrived; late and unneeded ones are fine, a repeated key changes nothing."""
        ...

    def skipped(self, key: Key) -> None:
        """The worker of `key` found nothing new to send (only where its task allowed that, see `Skip`)."""
        ...

    def decodable(self, job: int) -> bool:
        """Do the results heard until now suffice for `job`? Counts only; changes nothing."""
        ...

    def may_start(self, t: int) -> bool:
        """May round t follow now? Changes nothing.

        Is every job due by round t-1 decodable, and can every other active one still meet its deadline if nobody
        straggles from now on? For t == rounds: are all jobs decodable?
        """
        ...

    def end_round(self, t: int) -> tuple[int, ...]:
        """Round t closes: returns the jobs due by now (not those that were due earlier)."""
        ...

    def decode(self, job: int) -> Decoding:
        """The weights of a decodable job. Checks the residual numerically."""
        ...

    def estimate(self, job: int) -> Decoding:
        """The least-squares decode of `job` from what was heard; `missing` says how much it lacks."""
        ...

    def wanted(self, t: int) -> tuple[int, ...]:
        """Workers of round t whose answer is missing and would help if they were invoked again, most helpful first."""
        ...

    def keeps(self) -> frozenset[Key]:
        """Results heard that a later decode may still use; all others can be dropped."""
        ...

    def needs_weights(self) -> frozenset[int]:
        """Jobs whose weights a later round may still refer to, besides those of jobs that are not decoded yet."""
        ...

    def straggler_model(self, name: str) -> StragglerModel:
        """The declared model by name: "bursty", "arbitrary" or "either".

        Raises: ConfigError when it has no such model.
        """
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a scheme, as users write it."""

    name: str
    """Long name, as in job files: `max_stragglers`."""
    letter: str
    """The papers' letter, accepted everywhere too: `lambda`."""
    kind: type
    """int, float or str."""
    default: int | float | str | None
    """None: must be given."""
    meaning: str
    choices: tuple[str, ...] = ()


Params: TypeAlias = Mapping[str, int | float | str]
"""Long parameter name -> value, complete and of the right types (see `registry.parse_params`)."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Delays that were measured elsewhere, and computing as it was tried here: what to begin with."""

    delays_s: tuple[float, ...]
    """of single invocations without load, seconds"""
    slope_s: float
    """further seconds per unit of load"""


@dataclass(frozen=True, slots=True)
class Context:
    """What a scheme is built for."""

    workers: int
    jobs: int
    models: int = 1
    """M, models side by side: job t belongs to model t mod M."""
    seed: int = 0
    """Seeds the random parts of codes (group permutations, Gaussian rows)."""
    distances: Distances | None = None
    """Lazy schemes only; None in pure simulation, where every trigger then fires."""
    concurrency: int | None = None
    """C, invocations in flight at most, of all models together; None: as many as workers"""
    samples: int = 1
    """of one batch: turns a step size for the mean loss into one for sums"""
    rates: tuple[float, ...] = ()
    """learning rates of plain SGD, of jobs 0..M-1 and so of their models; empty: not known"""
    worth: Worth = WORTH
    """what waiting is worth and what calls cost, for schemes that size their jobs themselves"""
    longest_s: float = 300.0
    """what one call of several steps is to last at most, seconds"""
    expected: Expected | None = None
    """what calls are taken to take before any was made; None: nothing is known"""
    passes: int | None = None
    """P, into how many passes every batch is cut: chunk sizes become multiples of 1/P (`passes.py`); None: not known"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A case small enough to be drawn: `gradmux schemes NAME` shows it, and the tests play it."""

    workers: int
    params: Params = field(default_factory=dict)
    """names or letters, as users give them"""
    rounds: int = 2
    """to draw, and jobs to play"""
    late: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """round -> workers that do not answer in it (not their last message, where they send several)"""
    unchanged: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """round -> workers that find nothing new to send (`Skip`)"""
    models: int = 1
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class SchemeInfo:
    """One line of the registry: everything that `gradmux schemes` prints, and how to build the scheme."""

    name: str
    title: str
    build: Callable[[Params, Context], Scheme]
    """Raises ConfigError that names the parameter, its value and what would fit."""
    parameters: tuple[Parameter, ...]
    constraints: str
    load: str
    """The formula of the normalised load, as text."""
    delay: str
    tolerates: str
    costs: str
    avoid: str
    """When not to use it."""
    source: str
    example: str = field(default="")
    """A worked example small enough to do by hand."""
    sample: Sample | None = None
    """what to draw of it"""
    stretches: bool = False
    """True: its jobs may have several steps (`asks.Stretches`), and are chosen as they are dispatched"""
    grid: Callable[[int, int], Sequence[Params]] | None = None
    """(n, M) -> what `gradmux tune` tries of it, names or letters; None: combinations of what its parameters take"""
    facts: Facts | None = None
    """s, T, loads, ... of many parameter sets at once; None: it sizes itself, or nobody asks beforehand"""


SchemeTable: TypeAlias = Sequence[SchemeInfo]
