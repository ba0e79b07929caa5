"""A run's record -> what the run has come to: all its lives together, each gradient counted once.

A life begins where the checkpoint before it stood, so what a killed life did after its last checkpoint is in the record
twice: paid twice, but applied once. `History` takes line after line, so that it can follow a run that still goes on.
Knows no files but the record. Read next: `status.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gradmux.orchestrator.record import (
    Beside,
    Decoded,
    EndLine,
    Header,
    Heard,
    Line,
    RecordError,
    RoundLine,
    Sent,
    decode_lines,
)

WORTH = "worth"
"""by what schemes size their jobs"""
DONE = "done"
"""key of `Header.extra`: steps of each model that were done when the life, or this segment of it, began"""
PASSES = "passes"
"""key of `Header.extra`: P, into how many passes every batch is cut"""
STEPS = "steps"
"""key of `Header.extra`: steps of the whole run, where the header is that of a segment of it"""
MOST = "most"
"""key of `Header.extra`: steps that one job of each model may have, where jobs may have several; null: any number"""
RUN = "of"
"""key of `Header.extra`: the run's name in the object store, which no other run has"""
UNRECORDED = "unrecorded"
"""key of `Header.extra`: steps of each model that were done when the life began, and that no line before tells of"""
ROUNDS = "rounds"
"""key of `Header.extra`: rounds of this life before this segment"""


@dataclass(slots=True)
class History:
    """Everything that the lines so far have told. Times in seconds."""

    header: Header | None = None
    """of the last life"""
    lives: int = 0
    rounds: int = 0
    invocations: int = 0
    returned: int = 0
    """invocations that have come back"""
    failed: int = 0
    """those of them that brought nothing"""
    billed_s: float = 0.0
    beside: Beside = field(default_factory=Beside)
    """calls that are not in these figures"""
    cpus: frozenset[str] = frozenset()
    """models of the processors that workers had, as far as lives ended in order"""
    load: float = 0.0
    """largest fraction of one batch that a worker processed in one round"""
    steps: list[int] = field(default_factory=list)
    """done, by model"""
    losses: list[float | None] = field(default_factory=list)
    """of the last step, by model"""
    metrics: list[Mapping[str, float]] = field(default_factory=list)
    """of the last step, by model"""
    redone: int = 0
    """gradients that were computed again because a life ended before its next checkpoint"""
    unrecorded: int = 0
    """gradients that were applied, but that the record has lost: a life says so in its header"""
    max_residual: float = 0.0
    max_amplification: float = 0.0
    max_missing: float = 0.0
    """largest share of a gradient that was missing (approximate decodes)"""
    buffers_stayed: int = 0
    """gradients, estimated without the batch's first pass, after which buffers stayed as they were"""
    end: EndLine | None = None
    """how the last life ended; None while it runs, or when it was killed"""
    in_flight: int = 0
    """invocations of the last life that have not come back, as far as the record knows"""
    _walls_s: float = 0.0
    _first_s: float | None = None
    _last_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """From the first dispatch to the last applied gradient, summed over the lives."""
        return self._walls_s + self._this_wall_s()

    def take(self, line: Line) -> None:
        """One more line. Raises RecordError when a gradient was lost or counted twice."""
        if isinstance(line, Header):
            self._begin(line)
            return
        self.end = line if isinstance(line, EndLine) else None
        self.cpus |= frozenset(() if self.end is None else self.end.cpus)
        self.beside += line.beside
        if isinstance(line, RoundLine):
            self.rounds += 1
            self.load = max(self.load, line.load)
        for group in line.sent:
            self._send(group)
        for arrival in line.arrivals:
            self._hear(arrival)
        for decoded in line.decoded:
            self._apply(decoded)

    def _begin(self, header: Header) -> None:
        done, lost = _by_model(header, DONE), _by_model(header, UNRECORDED)
        if self.header is None:
            lost = done
        joined = header.models - len(self.steps)  # models that are new in this life
        self.steps, self.losses = self.steps + [0] * joined, self.losses + [None] * joined
        self.metrics += [{} for _ in range(joined)]
        ahead = [steps - told for steps, told in zip(done, self.steps, strict=True)]
        if any(gap > known for gap, known in zip(ahead, lost, strict=True)):
            raise RecordError(f"life {header.epoch} began after {done} steps, but only {self.steps} are recorded")
        if self.header is None or header.epoch != self.header.epoch:
            self._walls_s += self._this_wall_s()
            self._first_s, self.in_flight = None, 0
            self.lives += 1
        self.end = None
        self.unrecorded += sum(gap for gap in ahead if gap > 0)
        self.redone -= sum(gap for gap in ahead if gap < 0)
        self.steps, self.header = done, header

    def _send(self, group: Sent) -> None:
        self.invocations += len(group.workers)
        self.in_flight += len(group.workers)
        if self._first_s is None:
            self._first_s = self._last_s = group.at_s

    def _hear(self, arrival: Heard) -> None:
        if not arrival.final:
            return
        self.returned += 1
        self.in_flight -= 1
        self.billed_s += arrival.billed_s
        self.failed += not arrival.slots

    def _apply(self, decoded: Decoded) -> None:
        if decoded.model < 0 or decoded.steps < 1:
            raise RecordError(f"{decoded.steps} steps of model {decoded.model} cannot be")
        reached = self.steps[decoded.model]
        if decoded.step != reached:
            what = "was applied twice" if decoded.step < reached else f"came when {reached} were done"
            raise RecordError(f"step {decoded.step} of model {decoded.model} {what}")
        self.steps[decoded.model] = reached + decoded.steps
        self.losses[decoded.model] = decoded.loss
        self.metrics[decoded.model] = decoded.metrics[-1] if decoded.metrics else {}
        self._last_s = max(self._last_s, decoded.at_s)
        self.max_residual = max(self.max_residual, decoded.residual)
        self.max_amplification = max(self.max_amplification, decoded.amplification)
        self.max_missing = max(self.max_missing, decoded.missing)
        self.buffers_stayed += decoded.buffers_stayed

    def _this_wall_s(self) -> float:
        return 0.0 if self._first_s is None else self._last_s - self._first_s


class Follower:
    """Reads a record that may still grow: each call of `read` takes what is new."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self.history = History()
        self.offset = 0
        """bytes that were taken"""
        self._lines = 0

    def read(self) -> History:
        """The history until now; empty when there is no record yet. Raises RecordError for a damaged one."""
        try:
            with self._record.open("rb") as file:
                file.seek(self.offset)
                texts = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return self.history
        except OSError as error:
            raise RecordError(f"cannot read the record {self._record}: {error.strerror}") from error
        whole = [text for text in texts if text.endswith(b"\n")]
        self._take(whole)
        return self.history

    def _take(self, texts: list[bytes]) -> None:
        try:
            decoded = [text.decode() for text in texts]
        except UnicodeDecodeError as error:
            raise RecordError(f"{self._record} is not a run's record: it is not text") from error
        for line in decode_lines(decoded, self._record, self._lines + 1):
            self._check(line)
        self._lines += len(texts)
        self.offset += sum(map(len, texts))

    def _check(self, line: Line) -> None:
        if self.history.header is None and not isinstance(line, Header):
            raise RecordError(f"{self._record} does not begin with a description of the run")
        try:
            self.history.take(line)
        except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise RecordError(f"{self._record}: its lines do not fit together: {error}") from error


def read_history(record: Path) -> History:
    """The whole record. Raises RecordError."""
    return Follower(record).read()


def _by_model(header: Header, key: str) -> list[int]:
    """Steps of each model, zeros where the header does not say. Raises ValueError, TypeError."""
    steps = [int(each) for each in header.extra.get(key, [0] * header.models)]
    if len(header.names) not in (0, header.models):
        raise ValueError(f"{len(header.names)} names of {header.models} models")
    if len(steps) != header.models or any(each < 0 for each in steps):
        raise ValueError(f"{key} of {header.models} models is {str(steps)[:60]}")
    return steps
