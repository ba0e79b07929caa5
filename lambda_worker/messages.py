"""The messages between the orchestrator and a worker, as data: `Request` and `Reply`, and what they are made of.

Plain frozen dataclasses; how they look as JSON and what is refused is `contract.py`'s affair, and everybody outside
this package imports them from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_REPLY_BYTES = 6_291_556
"""AWS: the encoded JSON of a synchronous reply, at most."""

# --- the request -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weights:
    """A flat snapshot: parameters, then float buffers (`flat.py`), little endian, of the model's dtype."""

    key: str | None = None
    """S3 key; the content behind a key never changes. Exactly one of the two is given."""
    inline: bytes | None = None
    """The snapshot itself, for tiny models."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the data set: the range [lo, hi), or ids."""

    lo: int = 0
    hi: int = 0
    ids: bytes | None = None
    """Row numbers as little-endian uint32; then lo and hi are 0."""

    @classmethod
    def of(cls, ids: ArrayLike) -> Rows:
        """Rows by number, in this order."""
        return cls(ids=np.ascontiguousarray(ids, dtype="<u4").tobytes())

    @property
    def count(self) -> int:
        return self.hi - self.lo if self.ids is None else len(self.ids) // 4

    def indices(self) -> NDArray[np.int64]:
        """The row numbers, (count,)."""
        if self.ids is None:
            return np.arange(self.lo, self.hi, dtype=np.int64)
        return np.frombuffer(self.ids, dtype="<u4").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the batch, and its coefficient in the task's linear combination."""

    rows: Rows
    coefficient: float = 1.0
    seed: int = 0
    """For dropout: the same for every worker that computes this chunk of this job."""


@dataclass(frozen=True, slots=True)
class Skip:
    """LAG-WK: answer "skipped" when the gradient moved little since `weights`."""

    weights: Weights
    threshold: float
    """Of the squared distance between the two coded gradient SUMS."""


@dataclass(frozen=True, slots=True)
class Task:
    """One linear combination of chunk gradients, answered by one result."""

    slot: int
    job: int
    model: str
    """S3 key of the model spec; the content behind a key never changes."""
    weights: Weights
    chunks: tuple[Chunk, ...]
    message: int = 0
    """Order of answering within the invocation (partial stragglers: 0 the private sum, 1 the coded one)."""
    seed: int = 0
    """For dropout, with the chunk's: per run and job, never per worker."""
    skip: Skip | None = None


@dataclass(frozen=True, slots=True)
class ReplyMode:
    """How results come back."""

    mode: str = "auto"
    """auto (inline while the encoded reply fits, the largest to S3 otherwise), inline or s3."""
    dtype: str = "float32"
    """Of the gradient on the wire: float32, float64 or float16."""
    prefix: str = ""
    """Prefix of S3 keys for what is spilled, early or posted."""
    max_inline: int = MAX_REPLY_BYTES
    """Bytes of the encoded JSON reply, at most."""
    early: bool = False
    """Put each message but the last to S3 (`early_key`) as soon as it is ready."""
    post: bool = False
    """Put the whole reply to S3 (`reply_key`) too: for Event invocations, whose return value AWS drops."""


@dataclass(frozen=True, slots=True)
class Source:
    """One spilled result, as a term of a weighted sum. Its fields are those of the `Result` that reported it."""

    key: str
    weight: float
    offset: int
    """Bytes before the first gradient element."""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Reduction:
    """Sum elements [lo, hi) of many spilled gradients, with weights but 0. The answer has the reply's dtype."""

    job: int
    sources: tuple[Source, ...]
    lo: int
    hi: int
    out: str
    """S3 key of the answer: a result buffer with hi - lo elements and no sums."""
    dtype: str = "float32"
    """Of the spilled gradients: float32, float64 or float16."""


@dataclass(frozen=True, slots=True)
class Request:
    """One invocation."""

    op: str
    run: str
    epoch: int
    round: int
    worker: int
    bucket: str
    attempt: int = 1
    """From 1: how often this worker's part of this round was invoked."""
    load: float = 0.0
    """Fraction of one batch that this invocation processes."""
    cancel: str | None = None
    """S3 key of the run's cancel marker (`cancel_marker`)."""
    data: str | None = None
    """S3 key of the data manifest."""
    reply: ReplyMode = field(default_factory=ReplyMode)
    tasks: tuple[Task, ...] = ()
    reduce: Reduction | None = None


# --- the reply ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one task."""

    slot: int
    job: int
    status: str
    """ok, skipped, failed or cancelled."""
    message: int = 0
    error: str | None = None
    """"Name: what", then the user's traceback on further lines. Given iff failed."""
    distance: float | None = None
    """LAG-WK: squared distance to the gradient at the reference weights."""
    buffer: bytes | bytearray | None = None
    """The result's bytes (`decode_result`). An "ok" result has this or `key`."""
    key: str | None = None
    """S3 key of the result's bytes."""
    size: int = 0
    """Bytes of the result, wherever they are."""
    offset: int = 0
    """Of the gradient within a spilled result, bytes."""
    scale: float = 1.0
    """Of a spilled float16 gradient."""
    sums: tuple[float, ...] | None = None
    """The sums of a spilled or skipped result, so that nobody need fetch it for them."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the worker's time went, in seconds of wall time."""

    compute_s: float = 0.0
    read_s: float = 0.0
    write_s: float = 0.0
    cold: bool = False
    """This sandbox's first invocation."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one invocation. `op` to `attempt` repeat the request, for deduplication."""

    op: str
    run: str
    epoch: int
    round: int
    worker: int
    attempt: int
    results: tuple[Result, ...]
    timing: Timing = field(default_factory=Timing)
    cpu: str = ""
    """Model name of the CPU: results differ a little between models."""
