"""The messages between the orchestrator and a worker, as data: `Request` and `Reply`, and what they are made of.

Frozen msgspec structs: the type of a field is what its JSON must be, and a field at its default is not sent. How they
become bytes is `contract.py`'s affair, and everything outside this package imports them from there.

    Task      one linear combination of gradients of passes, at one snapshot: answered by sums
    Stretch   several optimizer steps of one model in a row: answered by the model's state after them
    A pass is one forward and backward; a batch is cut into P of them (`order.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Raw, field
from numpy.typing import ArrayLike, NDArray

from gradmux.lambda_worker.codec import (
    ContractError,
    Message,
    Natural,
    NotBelowZero,
    Positive,
    Text,
    from_raw,
    to_raw,
)

PROTOCOL: Final = 3
"""The version of the contract; the first field of every request and reply."""
MAX_REPLY_BYTES = 6_291_556
"""AWS: the encoded JSON of a synchronous reply, at most."""
NOTHING = Raw()
"""Content that does not travel in the message itself."""

Dtype: TypeAlias = Literal["float32", "float64", "float16"]
Mode: TypeAlias = Literal["auto", "inline", "s3"]
Operation: TypeAlias = Literal["gradient", "steps", "warm", "reduce"]

# --- what both kinds of work are given ---------------------------------------------------------------------------


class Content(Message, frozen=True):
    """Bytes under an S3 key, or in the message itself where they are few."""

    key: Text | None = None
    """It ends in the SHA-256 of the content (`digests.py`). Exactly one of the two is given."""
    inline: Raw = NOTHING
    """Base64, made once however often it travels: see `of` and `raw`."""

    def require(self, name: str) -> None:
        """Raises ContractError that begins with the field's name unless exactly one of the two is given."""
        if (self.key is None) == (self.inline is NOTHING):
            raise ContractError(f"{name}.key: expected a key or inline content, and not both")

    def raw(self, where: str) -> bytearray | None:
        """The inline content; None when it lies in S3. Raises ContractError that names `where`."""
        return from_raw(self.inline, f"{where}.inline") if self.key is None else None


class Weights(Content, frozen=True):
    """A flat snapshot: parameters, then float buffers (`flat.py`), little endian, of the model's dtype."""

    @classmethod
    def of(cls, content: bytes | bytearray) -> Weights:
        """A snapshot that travels in the request."""
        return cls(inline=to_raw(content))


class State(Content, frozen=True):
    """All of a model between two steps: parameters, buffers, optimizer, scheduler, averages; JSON and tensors."""

    @classmethod
    def of(cls, content: bytes | bytearray) -> State:
        """A state that travels in the request."""
        return cls(inline=to_raw(content))


class Order(Message, frozen=True):
    """Which rows each step uses: `order.BatchOrder`."""

    rows: Positive
    """of the data set"""
    batch_size: Positive
    seed: Natural = 0
    shuffle: bool = True
    """False: every epoch in the order of the data set"""

    def require(self, passes: int) -> None:
        """Raises ContractError unless the data set has such batches, and they as many rows as passes."""
        if self.batch_size > self.rows:
            raise ContractError(f"order.batch_size: {self.batch_size} rows of a data set that has {self.rows}")
        if passes > self.batch_size:
            raise ContractError(f"passes: {passes} of a batch of {self.batch_size} rows")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the data set: the range [lo, hi), or ids. They do not travel: each side finds them by `Order`."""

    lo: int = 0
    hi: int = 0
    ids: bytes | None = None
    """Row numbers as little-endian uint32; then lo and hi are 0."""

    @classmethod
    def of(cls, ids: ArrayLike) -> Rows:
        """Rows by number, in this order."""
        return cls(ids=np.ascontiguousarray(ids, dtype="<u4").tobytes())

    @classmethod
    def ascending(cls, ids: NDArray[np.uint32]) -> Rows:
        """Ascending row numbers, as a range where they are one."""
        first, last = int(ids[0]), int(ids[-1])
        return cls(lo=first, hi=last + 1) if bool((np.diff(ids) == 1).all()) else cls.of(ids)

    @property
    def count(self) -> int:
        return self.hi - self.lo if self.ids is None else len(self.ids) // 4

    def indices(self) -> NDArray[np.int64]:
        """The row numbers, (count,)."""
        if self.ids is None:
            return np.arange(self.lo, self.hi, dtype=np.int64)
        return np.frombuffer(self.ids, dtype="<u4").astype(np.int64)


# --- the request -------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """Passes [first, end) of the batch, each times the same coefficient."""

    first: Natural
    end: Natural
    coefficient: float = 1.0

    @property
    def width(self) -> int:
        """How many passes it covers."""
        return self.end - self.first


class Skip(Message, frozen=True):
    """LAG-WK: answer "skipped" when the gradient moved little since `weights`."""

    weights: Weights
    threshold: NotBelowZero
    """Of the squared distance between the two coded gradient SUMS."""

    def __post_init__(self) -> None:
        self.weights.require("weights")


class Task(Message, frozen=True):
    """One linear combination of the gradients of passes, answered by one result."""

    slot: Natural
    job: Natural
    model: Text
    """S3 key of the model spec (`models.ModelSpec`), which ends in the SHA-256 of its content."""
    weights: Weights
    order: Order
    step: Natural
    """of the model, from 0: with `order` it says which rows the batch has"""
    passes: Positive
    """P, into how many the batch is cut"""
    terms: tuple[Term, ...]
    """Ascending, and no pass in two of them; none: the answer is zeros."""
    message: Natural = 0
    """Order of answering within the invocation (partial stragglers: 0 the private sum, 1 the coded one)."""
    seed: Natural = 0
    """Of the model's random numbers; step and pass are mixed in by the worker, never the worker's own number."""
    skip: Skip | None = None

    def __post_init__(self) -> None:
        """All that types cannot say, in one place: this is run for every task of every call, on both sides."""
        order, done = self.order, 0
        if order.batch_size > order.rows or self.passes > order.batch_size:
            order.require(self.passes)
        if (self.weights.key is None) == (self.weights.inline is NOTHING):
            self.weights.require("weights")
        for first, end, _ in self.terms:
            if not done <= first < end <= self.passes:
                place = f"terms[{self.terms.index((first, end, _))}]"
                raise ContractError(f"{place}: expected ascending ranges of passes 0 to {self.passes}")
            done = end

    @property
    def rows(self) -> int:
        """How many rows it covers."""
        size, passes = self.order.batch_size, self.passes
        return sum(end * size // passes - first * size // passes for first, end, _ in self.terms)


class Stretch(Message, frozen=True):
    """Steps [first, first + steps) of one model in a row, with the same arithmetic as the client's own step."""

    slot: Natural
    job: Natural
    model: Text
    """S3 key of the model spec (`models.ModelSpec`), which ends in the SHA-256 of its content."""
    state: State
    """before step `first`"""
    order: Order
    first: Natural
    steps: Positive
    """K"""
    passes: Positive
    """P of each batch: one forward and backward for each, summed in order"""
    seed: Natural = 0
    """as a task's"""
    keep: tuple[Natural, ...] = ()
    """steps after which the snapshot is put into S3 as well: evaluation points"""
    done: Text | None = None
    """S3 key that exists once another copy has answered; looked for now and then between steps"""
    budget_s: NotBelowZero | None = None
    """seconds after which no further step is begun: what is done by then is the answer"""

    def __post_init__(self) -> None:
        outside = [step for step in self.keep if not self.first <= step < self.first + self.steps]
        if outside:
            raise ContractError(f"keep: steps {outside} are not of this stretch")
        self.order.require(self.passes)
        self.state.require("state")


class ReplyMode(Message, frozen=True):
    """How results come back."""

    mode: Mode = "auto"
    """auto (inline while the encoded reply fits, the largest to S3 otherwise), inline or s3."""
    dtype: Dtype = "float32"
    """Of the gradient on the wire."""
    prefix: str = ""
    """Prefix of S3 keys for what is spilled, early, posted or kept."""
    max_inline: Natural = MAX_REPLY_BYTES
    """Bytes of the encoded JSON reply, at most."""
    early: bool = False
    """Put each message but the last to S3 (`early_key`) as soon as it is ready."""
    post: bool = False
    """Put the whole reply to S3 (`reply_key`) too: for Event invocations, whose return value AWS drops."""


LOST: Final = -1.0
"""In the place of a source's CRC32: it is not there, or too short."""


class Source(NamedTuple):
    """One spilled result, as a term of a weighted sum. Its fields are those of the `Result` that reported it."""

    key: Text
    weight: float
    offset: Natural
    """Bytes before the first gradient element."""
    scale: float = 1.0


class Reduction(Message, frozen=True):
    """Sum elements [lo, hi) of many spilled gradients, with weights but 0. The answer has the reply's dtype."""

    job: Natural
    sources: tuple[Source, ...]
    lo: Natural
    hi: Natural
    out: Text
    """S3 key of the answer: a result buffer with hi - lo elements. Its sums are, for each source, the CRC32 of the
    bytes that were read of it; `LOST` where they could not be had, and then it is not in the sum."""
    dtype: Dtype = "float32"
    """Of the spilled gradients."""

    def __post_init__(self) -> None:
        if not self.sources or self.lo >= self.hi:
            raise ContractError("sources: expected one source or more, and lo < hi")


class Request(Message, frozen=True, tag_field="protocol", tag=PROTOCOL, omit_defaults=False):
    """One invocation. What places it in the run comes first, so that it can be found without parsing the rest."""

    op: Operation
    run: Text
    epoch: Natural
    round: Natural
    worker: Natural
    bucket: Text
    attempt: Positive = 1
    """From 1: how often this worker's part of this round was invoked."""
    load: NotBelowZero = 0.0
    """Fraction of one batch that this invocation processes; of a stretch, batches."""
    cancel: Text | None = None
    """S3 key of the run's cancel marker (`cancel_marker`)."""
    data: Text | None = None
    """S3 key of the data manifest."""
    reply: ReplyMode = field(default_factory=ReplyMode)
    tasks: tuple[Task, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    reduce: Reduction | None = None

    def __post_init__(self) -> None:
        if (self.op == "reduce") != (self.reduce is not None):
            raise ContractError(f"reduce: must be given for op 'reduce' alone, the op is {self.op!r}")
        if self.stretches and self.op not in ("steps", "warm"):
            raise ContractError(f"stretches: must be given for op 'steps' or 'warm' alone, the op is {self.op!r}")
        if (self.tasks or self.stretches) and self.data is None:
            raise ContractError("data: tasks need a data manifest")
        slots = [each.slot for each in self.tasks] + [each.slot for each in self.stretches]
        if len(set(slots)) < len(slots):
            raise ContractError(f"tasks: slots must differ, got {slots}")
        mode = self.reply
        if not mode.prefix and (mode.mode != "inline" or mode.early or mode.post):
            raise ContractError("reply.prefix: needed unless everything is answered inline")


# --- the reply ---------------------------------------------------------------------------------------------------


CORRECT = ""
"""name of the correct predictions, which no metric of the user's has"""


class Figures(Message, frozen=True):
    """What the steps of a stretch came to, a number for each step that was done: sums over the batch, and counts."""

    loss: tuple[float, ...] = ()
    """sum; the mean loss is loss / count"""
    count: tuple[float, ...] = ()
    rows: tuple[Natural, ...] = ()
    gradient_norm: tuple[float, ...] = ()
    """of the mean gradient, before it is clipped"""
    metrics: Mapping[str, tuple[tuple[float, float], ...]] = {}
    """name -> (sum, count) of each step; CORRECT: predictions"""


class Divergence(Message, frozen=True):
    """Step i gave numbers that are not finite: a result like others, not a failure to repeat."""

    step: Natural
    """i; the state is that before it"""
    what: str
    """for example "the loss is nan"; one line"""


class Stretched(Message, frozen=True):
    """How far a stretch got, beside the state that is the result's content."""

    steps: Natural
    """done; K, unless it diverged or its time was over"""
    figures: Figures
    diverged: Divergence | None = None
    kept: Mapping[str, Text] = {}
    """step -> S3 key of the snapshot after it, for the steps in `keep` that were done"""

    def __post_init__(self) -> None:
        figures = self.figures
        columns = (figures.loss, figures.count, figures.rows, figures.gradient_norm, *figures.metrics.values())
        if any(len(column) != self.steps for column in columns):
            raise ContractError(f"figures: expected a number for each of {self.steps} steps")


class Result(Message, frozen=True):
    """The answer to one task or stretch."""

    slot: Natural
    job: Natural
    status: Literal["ok", "skipped", "failed", "cancelled"]
    message: Natural = 0
    error: Text | None = None
    """"Name: what", then the user's traceback on further lines. Given iff failed."""
    distance: NotBelowZero | None = None
    """LAG-WK: squared distance to the gradient at the reference weights."""
    buffer: bytearray | None = None
    """The result's bytes: of a task (`decode_result`), of a stretch its state. An "ok" result has this or `key`."""
    key: Text | None = None
    """S3 key of the result's bytes; of a state, it ends in their SHA-256, so that the next stretch can name it."""
    size: Natural = 0
    """Bytes of the result, wherever they are."""
    offset: Natural = 0
    """Of the gradient within a spilled result, bytes."""
    scale: float = 1.0
    """Of a spilled float16 gradient."""
    buffers: Natural = 0
    """Elements of the buffers' section of a spilled result; they end where the gradient begins."""
    sums: tuple[float, ...] | None = None
    """The sums of a spilled or skipped result, so that it need not be fetched for them."""
    crc: Natural | None = None
    """CRC32 of a spilled result, as its head has it: what is read of it later is held against this."""
    stretch: Stretched | None = None
    """of a stretch that is ok"""

    def __post_init__(self) -> None:
        """Each status has its evidence, and no other's."""
        answers = (self.buffer is not None) + (self.key is not None)
        if answers != (self.status == "ok"):
            raise ContractError("status: an ok result has either a buffer or a key, any other has none")
        if (self.error is not None) != (self.status == "failed"):
            raise ContractError("error: must be given for a failed result, and for no other")
        if self.status == "skipped" and self.distance is None:
            raise ContractError("distance: a skipped result must say how little its gradient moved")


class Timing(Message, frozen=True):
    """Where the worker's time went, in seconds of wall time."""

    compute_s: NotBelowZero = 0.0
    read_s: NotBelowZero = 0.0
    write_s: NotBelowZero = 0.0
    cold: bool = False
    """This sandbox's first invocation."""
    whole_s: NotBelowZero = 0.0
    """Of the whole invocation until its answer was made: what is billed, but for the sandbox's start. 0: not told."""


class Reply(Message, frozen=True, tag_field="protocol", tag=PROTOCOL):
    """The answer to one invocation. `op` to `attempt` repeat the request, for deduplication."""

    op: Operation
    run: Text
    epoch: Natural
    round: Natural
    worker: Natural
    attempt: Positive
    results: tuple[Result, ...]
    timing: Timing = field(default_factory=Timing)
    cpu: str = ""
    """Model name of the CPU: results differ a little between models."""
    check: Text | None = None
    """CRC32, in hexadecimal, of results but for their buffers (which have their own), timing and cpu. Made by
    `reply_json`, held against what came by `parse_reply`; what repeats the request is held against that."""
