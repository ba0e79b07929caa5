"""The record of a run: one JSON line per round with everything the loop was told, so that the run can be replayed.

A line holds what happened since the line before: what was sent, every arrival in the order in which the loop took it,
what closed and what was decoded. The first line describes the run, the last one says how it ended. Times are seconds of
the fleet's clock and are written in full, since a replay must take the same decisions to the last bit.

Knows no tensors and no scheme. Read next: `loop.py` (writes it), `fleets/replay_fleet.py` (plays it again).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from zlib import crc32

import msgspec
from msgspec import Struct

from gradmux.orchestrator.disk import DISK, Disk, GrowingFile
from gradmux.orchestrator.errors import GradmuxError
from gradmux.orchestrator.jobs import Job
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import Decoding

VERSION = 1
MOST_MODELS = 1_000_000
"""of one record: more is damage"""


class RecordError(GradmuxError):
    """A record cannot be read: the line and what is wrong with it."""


class Sent(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Invocations that started at one instant."""

    at_s: float
    round: int
    attempt: int
    workers: tuple[int, ...]
    loads: tuple[float, ...]


class Heard(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One arrival, without its vectors."""

    at_s: float
    round: int
    worker: int
    attempt: int
    outcome: str
    slots: tuple[int, ...]
    skipped: tuple[int, ...]
    final: bool
    billed_s: float
    worker_s: float
    cold: bool
    error: str

    def arrival(self) -> Arrival:
        """The arrival again, with no results in it."""
        return Arrival(
            round=self.round,
            worker=self.worker,
            attempt=self.attempt,
            at_s=self.at_s,
            outcome=Outcome(self.outcome),
            slots=self.slots,
            skipped=self.skipped,
            final=self.final,
            billed_s=self.billed_s,
            worker_s=self.worker_s,
            cold=self.cold,
            error=self.error,
        )


class Begun(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job that was dispatched for the first time: from then on it is these steps of this model."""

    job: int
    model: int
    step: int
    """the first"""
    steps: int


class Decoded(Struct, frozen=True, forbid_unknown_fields=True):
    """One job's decode and what the step told."""

    job: int
    model: int
    step: int
    at_s: float
    results: int
    """how many results were combined"""
    weights_crc: int
    """CRC-32 of the keys and weights, in order: equal iff the same results were combined in the same way"""
    residual: float
    amplification: float
    missing: float
    loss: float
    count: int
    correct: int
    gradient_norm: float
    steps: int = 1
    """made at once, from `step` on"""
    earlier: tuple[tuple[float, int, int, float], ...] = ()
    """(loss, count, correct, gradient_norm) of each of them but the last, whose these are"""
    metrics: tuple[Mapping[str, float], ...] = ()
    """of each step, in order: means over the batch of what the job names; empty where it names none"""
    buffers_stayed: bool = False
    """an estimate without the batch's first pass: buffers that its forward would have changed are as before"""


class Beside(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Calls beside those of rounds, which are billed like them: workers that are started, gradients that are summed."""

    calls: int = 0
    billed_s: float = 0.0

    def __add__(self, other: Beside) -> Beside:
        return Beside(self.calls + other.calls, self.billed_s + other.billed_s)


class RoundLine(Struct, frozen=True, tag_field="kind", tag="round", forbid_unknown_fields=True):
    """One round, from the line before to its close."""

    round: int
    start_s: float
    end_s: float
    load: float
    """largest fraction of one batch that a worker processed in it"""
    late: tuple[int, ...]
    """workers that had not answered when it closed"""
    waited: bool
    in_flight: int
    """invocations still running when it closed, of all rounds"""
    sent: tuple[Sent, ...] = ()
    arrivals: tuple[Heard, ...] = ()
    decoded: tuple[Decoded, ...] = ()
    asked: tuple[tuple[str, float], ...] = ()
    """lazy schemes: what the scheme asked about weights and gradients, and the answers, in order"""
    beside: Beside = Beside()
    """since the line before"""
    begun: tuple[Begun, ...] = ()
    """since the line before, in the order of `sent`; not in records of older versions"""


class EndLine(Struct, frozen=True, tag_field="kind", tag="end", forbid_unknown_fields=True):
    """How the run ended, and what came after its last round."""

    state: str
    """"done", "stopped" (it can be resumed), "cancelled" or "failed"."""
    at_s: float
    reason: str = ""
    arrivals: tuple[Heard, ...] = ()
    decoded: tuple[Decoded, ...] = ()
    sent: tuple[Sent, ...] = ()
    """of a round that never closed"""
    beside: Beside = Beside()
    cpus: tuple[str, ...] = ()
    """models of the processors that workers had: results differ a little between them"""
    begun: tuple[Begun, ...] = ()


class Header(Struct, frozen=True, tag_field="kind", tag="run", forbid_unknown_fields=True):
    """What was run; enough to build the scheme and the policies again."""

    run: str
    scheme: str
    params: dict[str, Any]
    workers: int
    models: int
    steps: int
    seed: int
    wait: dict[str, Any]
    limits: dict[str, Any]
    first: int = 0
    epoch: int = 0
    names: tuple[str, ...] = ()
    """of the models"""
    created: str = ""
    version: int = VERSION
    extra: dict[str, Any] = {}


Line: TypeAlias = Header | RoundLine | EndLine


def _as_plain(value: object) -> object:
    """What msgspec does not know: NumPy's floats, and mappings that are not dicts."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a line of the record holds a {type(value).__name__}")


_ENCODER, _DECODER = msgspec.json.Encoder(enc_hook=_as_plain), msgspec.json.Decoder(Line)


class Recorder(Protocol):
    """Takes the lines of a run as they are made."""

    def write(self, line: Line) -> None: ...


class MemoryRecord:
    """Keeps the lines: simulation and tests."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def write(self, line: Line) -> None:
        self.lines.append(line)

    @property
    def rounds(self) -> list[RoundLine]:
        return [line for line in self.lines if isinstance(line, RoundLine)]


class Tee:
    """Writes to another recorder and keeps the lines."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.lines: list[Line] = []

    def write(self, line: Line) -> None:
        self._recorder.write(line)
        self.lines.append(line)


class FileRecord:
    """Appends lines to a file: on disk before `write` returns; a torn last line is cut off when reopened."""

    def __init__(self, path: Path, *, sync: bool = True, disk: Disk = DISK) -> None:
        """Raises: DiskError, as `write` does."""
        self._file = GrowingFile(path, disk, sync=sync)

    def write(self, line: Line) -> None:
        self._file.append(encode_line(line) + b"\n")

    def close(self) -> None:
        self._file.close()


def encode_line(line: Line) -> bytes:
    """One line of JSON, floats in full; arrivals and sends as plain lists without their field names.

    Raises: ValueError when a number is not finite, which JSON cannot hold.
    """
    text = _ENCODER.encode(line)
    if b"null" in text and not _finite(msgspec.to_builtins(line, enc_hook=_as_plain)):
        raise ValueError("a line of the record holds a number that is not finite")
    return text


def _finite(plain: Any) -> bool:
    """Are all numbers in it finite?"""
    if isinstance(plain, float):
        return math.isfinite(plain)
    if isinstance(plain, dict):
        return all(map(_finite, plain.values()))
    return all(map(_finite, plain)) if isinstance(plain, list | tuple) else True


def decode_line(text: str | bytes, where: str = "record") -> Line:
    """The line again. Raises: RecordError that names `where`."""
    try:
        line = _DECODER.decode(text)
        if isinstance(line, Header):
            _require_header(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise RecordError(f"{where} is not a line of a run's record: {error}") from error
    return line


def read_record(path: Path) -> Iterator[Line]:
    """The lines of a record file; a torn last line (the run was killed while writing) is left out."""
    try:
        with path.open(encoding="utf-8") as file:
            yield from decode_lines(file, path)
    except OSError as error:
        raise RecordError(f"cannot read the record {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is not a run's record: it is not text") from error


def decode_lines(texts: Iterable[str], path: Path, first: int = 1) -> Iterator[Line]:
    """The lines in `texts` as far as they are whole; the first of them is line number `first` of the file `path`."""
    for number, text in enumerate(texts, start=first):
        if text.endswith("\n"):
            yield decode_line(text, f"{path}, line {number},")


def heard(arrival: Arrival) -> Heard:
    """The recordable part of an arrival."""
    return Heard(
        at_s=arrival.at_s,
        round=arrival.round,
        worker=arrival.worker,
        attempt=arrival.attempt,
        outcome=arrival.outcome.value,
        slots=arrival.slots,
        skipped=arrival.skipped,
        final=arrival.final,
        billed_s=arrival.billed_s,
        worker_s=arrival.worker_s,
        cold=arrival.cold,
        error=arrival.error,
    )


def begun(number: int, job: Job) -> Begun:
    """The recordable form of a job."""
    return Begun(number, job.model, job.first, job.steps)


def sent(invocations: Sequence[Invocation], at_s: float) -> list[Sent]:
    """Groups one dispatch by round and attempt, in order."""
    groups: dict[tuple[int, int], list[Invocation]] = {}
    for call in invocations:
        groups.setdefault((call.round, call.attempt), []).append(call)
    return [
        Sent(at_s, round_, attempt, tuple(c.worker for c in calls), tuple(c.load for c in calls))
        for (round_, attempt), calls in groups.items()
    ]


def weights_crc(decoding: Decoding) -> int:
    """Fingerprint of which results were combined, how, and in which order."""
    text = ";".join(f"{k.round},{k.worker},{k.slot},{w.hex()}" for k, w in decoding.weights.items())
    return crc32(text.encode())


def _require_header(header: Header) -> None:
    """Raises ValueError for numbers and names that none has: they are counted and shown as they are."""
    numbers = (header.models, header.steps, header.epoch, header.extra.get("steps", 0))
    if any(type(each) is not int or each < 0 for each in numbers) or header.models > MOST_MODELS:
        raise ValueError(f"models, steps and epoch are {str(numbers)[:60]}")
    for text in (header.run, header.scheme, *header.names):
        if not text.isprintable():
            raise ValueError(f"{ascii(text)[:60]} is no name")
