"""The doors between loop and world: a fleet invokes and owns the clock, a store keeps bytes, a trainer has tensors.

Knows no scheme's inside, no AWS and no torch. `fleets/` implements `Fleet` (real endpoint, virtual time, replay),
`store.py` implements `Store`, `training/trainer.py` implements `Trainer`. Read next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gradmux.orchestrator.schemes.asks import Place
from gradmux.orchestrator.schemes.scheme import Slots


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of one worker: its tasks of one round, and which try this is."""

    round: int
    worker: int
    attempt: int
    """from 1"""
    slots: Slots
    load: float
    """fraction of one batch that it processes"""
    epoch: int = 0
    """life of the run: bumped by every resume, so that answers to a former life are told apart"""
    early: tuple[float, ...] = ()
    """what part of `load` is done when each message but the last is sent, in order (partial stragglers)"""


class Outcome(StrEnum):
    """How one invocation ended."""

    OK = "ok"
    FAILED = "failed"
    """the worker's own exception, NaN in every result, or a reply that does not parse"""
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    THROTTLED = "throttled"
    """429s beyond the fleet's patience"""
    UNREACHABLE = "unreachable"
    """5xx, connection or credential trouble beyond the fleet's patience"""
    CANCELLED = "cancelled"


UNREADABLE = "reply: "
"""How the error of an arrival begins whose reply came damaged, or answers something else."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What came of one invocation, in the fleet's clock. Slow, failed and late are ordinary cases of it."""

    round: int
    worker: int
    attempt: int
    at_s: float
    """when it came, seconds of the fleet's clock"""
    outcome: Outcome
    slots: tuple[int, ...] = ()
    """slots answered well (with a vector, unless in `skipped`)"""
    results: Mapping[int, Any] = field(default_factory=dict)
    """slot -> result (opaque here: the trainer combines them); empty in simulation"""
    skipped: tuple[int, ...] = ()
    """slots whose worker found nothing new to send (lazy schemes)"""
    final: bool = True
    """False for an early message of an invocation that is still running"""
    billed_s: float = 0.0
    worker_s: float = 0.0
    """time inside the handler"""
    cold: bool = False
    error: str = ""
    """one line, or the worker's traceback"""
    epoch: int = 0

    def stamped(self, at_s: float) -> Arrival:
        """The same, at another instant."""
        return Arrival(
            self.round,
            self.worker,
            self.attempt,
            at_s,
            self.outcome,
            self.slots,
            self.results,
            self.skipped,
            self.final,
            self.billed_s,
            self.worker_s,
            self.cold,
            self.error,
            self.epoch,
        )


class Fleet(Protocol):
    """Invokes workers and owns the clock. All implementations pass `tests/orchestrator/fleet_contract.py`.

    Each invocation gives exactly one final arrival, whatever became of it.
    """

    def now(self) -> float:
        """Seconds of this fleet's clock; never goes back."""
        ...

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        """Sends them and returns at once with the instant that counts as their start."""
        ...

    def next(self, until_s: float | None) -> Arrival | None:
        """The next arrival, in order of `at_s`; None when there is none by `until_s` (the clock then is at `until_s`).

        With `until_s` None it waits as long as something is in flight, and returns None when nothing is.
        Never returns an arrival whose `at_s` lies after `until_s`.
        """
        ...

    def close(self) -> None:
        """Frees connections; what is in flight is abandoned (AWS cannot take an invocation back)."""
        ...


class Store(Protocol):
    """Keeps bytes under names (S3, or memory). Key names are made by `store.Keys` alone."""

    def put(self, key: str, data: bytes | memoryview) -> None: ...
    def get(self, key: str) -> bytes: ...
    def view(self, key: str) -> memoryview:
        """The same as `get`, for large objects: where it can be had without a copy, it is."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes start..end-1."""
        ...

    def exists(self, key: str) -> bool: ...
    def delete(self, keys: Iterable[str]) -> None: ...
    def list(self, prefix: str) -> list[str]: ...


class StoreClient(Store, Protocol):
    """A store as a backend opens it: with what only one client may make, with many objects at a time, to be closed."""

    def create(self, key: str, data: bytes) -> bool:
        """Puts an object that is not there yet; False when it is. Of two clients at once, one gets True."""
        ...

    def put_many(self, objects: Mapping[str, bytes]) -> None: ...
    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]: ...
    def close(self) -> None: ...


class Bucket(Store, Protocol):
    """A store of the user's own, in which keys may be of any kind."""

    def pieces(self, key: str) -> Iterable[bytes | memoryview]:
        """The object bit by bit. Raises FileNotFoundError."""
        ...

    def children(self, folder: str) -> Sequence[str]:
        """The keys that begin with `folder` and have no further slash, sorted; those that cannot be read are named in
        the log and left out.
        """
        ...

    def sizes(self, prefix: str, most: int) -> Mapping[str, int]:
        """Keys that begin so, of whatever kind, and the bytes of each object; no more than the first `most`."""
        ...


@dataclass(frozen=True, slots=True)
class Packages:
    """What is installed where a backend's workers run."""

    names: frozenset[str]
    """distributions; what they need is there, too"""
    where: str
    """whose they are, for a sentence: the image of function gradmux-worker"""
    remedy: str
    """how a package comes to workers"""
    sure: bool = True
    """False: there may be more"""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one decoded job told: means over the batch."""

    loss: float
    count: int
    correct: int
    gradient_norm: float
    earlier: tuple[StepResult, ...] = ()
    """of a job of several steps: those before the last, whose figures these are"""
    steps: int | None = None
    """that were made of it; None: all"""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """named by the job; without those of which nothing counted"""
    buffers_stayed: bool = False
    """no result held the batch's first pass: buffers that its forward changes are as before"""


@dataclass(frozen=True, slots=True)
class ModelState:
    """One model between two steps."""

    steps: int
    """done"""
    weights: bytes
    """safetensors: what `safetensors.torch.load_model` takes; a tied tensor once, under its first name"""
    progress: bytes
    """optimizer, scheduler and average: `lambda_worker/state.py`"""


class Trainer(Protocol):
    """Holds the models. A job's weights are published once, before its first dispatch, and never change after."""

    def publish(self, job: int) -> None:
        """Makes the snapshot of the weights that `job` starts from available to workers."""
        ...

    def step(self, job: int, results: Sequence[tuple[Any, float]]) -> StepResult:
        """Applies the gradient of `job`: sum of weight * result, divided by the decoded sample count."""
        ...

    def retire(self, job: int) -> None:
        """Nothing will refer to the weights that `job` started from any more; it may never have been published."""
        ...


class Sums(Protocol):
    """Adds results as they arrive; the bits of a sum do not depend on their order."""

    def add(self, place: Place, result: Any) -> None:
        """Adds one result, with weight 1; its memory is the sum's from now on. Each place is taken once at most."""
        ...

    def take(self, job: int) -> Any:
        """The sum of what was added for `job`, as a result; forgets it."""
        ...


class Resumable(Protocol):
    """A trainer whose models can be put aside and taken up again, bit for bit."""

    def state(self, model: int) -> ModelState: ...
    def load_state(self, model: int, state: ModelState) -> None:
        """Raises ConfigError when the state is of another model or optimizer."""
        ...
