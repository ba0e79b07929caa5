"""A delay profile out of a run's record: how long each worker's first attempt took, round by round.

Knows no scheme. A row is a round in which every worker was invoked: rounds in which some had nothing to do are left
out. So is a round with an answer that was not heard, while it may still have been on its way: while it had been awaited
for less than the longest answer of the run. An answer awaited for longer counts as failed.
Read next: `orchestrator/record.py`, the format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gradmux.orchestrator.delays.profile import BoolArray, DelayProfile, FloatArray, IntArray
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import Outcome
from gradmux.orchestrator.record import EndLine, Header, Heard, Line, RecordError, RoundLine, Sent, read_record


@dataclass(slots=True)
class _Life:
    """What one life of the run (until it was resumed) tells: by round and worker, first attempts only."""

    workers: int
    sent: dict[int, dict[int, tuple[float, float]]] = field(default_factory=dict)
    """round -> worker -> (start, seconds of the clock; load)"""
    heard: dict[tuple[int, int], Heard] = field(default_factory=dict)
    last_s: float = 0.0
    """latest instant that the record knows"""


@dataclass(frozen=True, slots=True)
class _Row:
    """One round: (workers,) lists."""

    delays_s: list[float]
    """seconds until the answer, or until the call was known to have failed; inf: not heard of at all"""
    failed: list[bool]
    loads: list[float]
    cold: list[bool]


@dataclass(frozen=True, slots=True)
class Calls:
    """First attempts of a run, one after the other; arrays are (calls,)."""

    rounds: IntArray
    workers: IntArray
    loads: FloatArray
    delays_s: FloatArray
    """until the answer; inf where the call failed; where it has not come back: how long it has been awaited"""
    running: BoolArray
    """has not come back"""
    cold: BoolArray
    found_s: FloatArray
    """until a call was known to have failed; inf: it has not"""


def from_record(path: Path | str, *, slope_s: float | None = None) -> DelayProfile:
    """The profile of the run recorded in a file. Raises ConfigError when it holds no whole round, or is no record.

    Its load is the median of the loads; with `slope_s` (seconds per unit of load), answers to other loads are shifted
    to it.
    """
    path = Path(path)
    try:
        return from_lines(read_record(path), name=path.stem, slope_s=slope_s)
    except RecordError as error:
        raise ConfigError(str(error)) from error


def from_lines(lines: Iterable[Line], *, name: str = "", slope_s: float | None = None) -> DelayProfile:
    """The same from lines in memory: a run that is still going on profiles itself."""
    rows = [row for life in _lives(lines) for row in _rows(life)]
    if not rows:
        raise ConfigError(f"{name or 'the record'} has no round in which every worker was invoked and answered")
    delays_s, loads = np.array([row.delays_s for row in rows]), np.array([row.loads for row in rows])
    load = float(np.median(loads))
    failed, cold = np.array([row.failed for row in rows]), np.array([row.cold for row in rows])
    if slope_s is not None:
        delays_s = np.where(failed, delays_s, np.maximum(delays_s + slope_s * (load - loads), 0.0))
    return DelayProfile(delays_s, load=load, slope_s=slope_s, cold=cold, failed=failed, name=name)


def calls_of(lines: Iterable[Line]) -> Calls:
    """All first attempts in a part of one life, those of rounds in which few were invoked included.

    `from_lines` leaves out what has not come back, and so the slowest answers of all; here they are marked.
    """
    told = [
        (index, worker, load, *_state(life, index, worker))
        for life in _lives(lines)
        for index, calls in sorted(life.sent.items())
        for worker, (_, load) in sorted(calls.items())
    ]
    columns = list(zip(*told, strict=True)) or [()] * 7
    index, worker, loads, delays_s, running, cold, found_s = columns
    return Calls(
        np.array(index, dtype=np.int64),
        np.array(worker, dtype=np.int64),
        np.array(loads, dtype=np.float64),
        np.array(delays_s, dtype=np.float64),
        np.array(running, dtype=np.bool_),
        np.array(cold, dtype=np.bool_),
        np.array(found_s, dtype=np.float64),
    )


def _state(life: _Life, index: int, worker: int) -> tuple[float, bool, bool, float]:
    """(delay, running, cold, found to have failed) of one call."""
    start_s, item = life.sent[index][worker][0], life.heard.get((index, worker))
    if item is None:
        return max(life.last_s - start_s, 0.0), True, False, math.inf
    took_s, answered = item.at_s - start_s, item.outcome == Outcome.OK
    return (took_s if answered else math.inf), False, item.cold, (math.inf if answered else took_s)


def _lives(lines: Iterable[Line]) -> Iterator[_Life]:
    life: _Life | None = None
    for line in lines:
        if isinstance(line, Header):
            if life is not None:
                yield life
            life = _Life(line.workers)
        elif life is None:
            raise ConfigError("the record does not begin with a description of the run")
        else:
            _take(life, line)
    if life is not None:
        yield life


def _take(life: _Life, line: RoundLine | EndLine) -> None:
    if isinstance(line, RoundLine):
        for group in line.sent:
            _take_sent(life, group)
    for item in line.arrivals:
        if item.attempt == 1 and item.final and item.worker in life.sent.get(item.round, {}):
            life.heard[item.round, item.worker] = item
        life.last_s = max(life.last_s, item.at_s)
    life.last_s = max(life.last_s, line.end_s if isinstance(line, RoundLine) else line.at_s)


def _take_sent(life: _Life, group: Sent) -> None:
    if group.attempt == 1:
        calls = zip(group.workers, group.loads, strict=True)
        life.sent.setdefault(group.round, {}).update({worker: (group.at_s, load) for worker, load in calls})


def _rows(life: _Life) -> Iterator[_Row]:
    """The whole rounds of one life, in order."""
    waits_s = [item.at_s - life.sent[item.round][item.worker][0] for item in life.heard.values()]
    longest_s = max(waits_s, default=math.inf)
    for round_index, calls in sorted(life.sent.items()):
        if len(calls) < life.workers:
            continue
        unheard_since_s = [at_s for worker, (at_s, _) in calls.items() if (round_index, worker) not in life.heard]
        if all(life.last_s - at_s > longest_s for at_s in unheard_since_s):
            yield _row(life, round_index)


def _row(life: _Life, round_index: int) -> _Row:
    calls = life.sent[round_index]
    heard = [life.heard.get((round_index, worker)) for worker in range(life.workers)]
    return _Row(
        delays_s=[math.inf if item is None else item.at_s - calls[worker][0] for worker, item in enumerate(heard)],
        failed=[item is None or item.outcome != Outcome.OK for item in heard],
        loads=[calls[worker][1] for worker in range(life.workers)],
        cold=[item is not None and item.cold for item in heard],
    )
