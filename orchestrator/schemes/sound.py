"""Is an assignment one that can be sent? Structure alone: workers, slots, jobs, chunks, coefficients.

What looks sound in a few passes over all tasks is taken as it is, since this happens in every round. All else is gone
through task by task: numbers of other types (numpy's) become plain ones, and the first real mistake is named by worker
and chunk. Knows no rounds beyond the one it is shown. Read next: `checked.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from gradmux.orchestrator.schemes.scheme import Assignment, Slots, Task

MOST_ROWS = 8192
"""rows that are remembered as sound: most rounds of most schemes use those of the rounds before"""


class Mistake(Exception):
    """What is wrong, in words that go behind "round 3, "."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the tasks of one round have to fit."""

    workers: int
    """n"""
    chunks: int
    first_job: int
    """the oldest that a task may be of"""
    last_job: int
    ones: bool
    """must all coefficients be 0 or 1 (`binary`)?"""


class Soundness:
    """Checks assignments; remembers rows that were sound."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, ...], tuple[float, ...]] = {}
        """chunks -> coefficients"""

    def of(self, given: object, bounds: Bounds) -> Assignment:
        """The assignment, with plain numbers. Raises: Mistake."""
        if not isinstance(given, Mapping):
            raise Mistake(f"assign gave {_kind(given)}, not a mapping from workers to slots")
        if self._looks_sound(given, bounds):
            return given
        return {_worker(worker, bounds): _slots(worker, slots, bounds) for worker, slots in given.items()}

    def _looks_sound(self, given: Mapping[Any, Any], bounds: Bounds) -> bool:
        """True: nothing is wrong; False: something may be."""
        if not given:
            return True
        if set(map(type, given)) != {int} or set(map(type, given.values())) != {tuple}:
            return False
        tasks = [task for slots in given.values() for task in slots if task is not None]
        return (
            min(given) >= 0
            and max(given) < bounds.workers
            and set(map(type, tasks)) <= {Task}
            and all(self._plain(job, bounds.first_job, bounds.last_job) for job in {task.job for task in tasks})
            and all(self._plain(message, 0, len(tasks)) for message in {task.message for task in tasks})
            and self._rows_look_sound(tasks, bounds)
        )

    @staticmethod
    def _plain(number: object, low: int, high: int) -> bool:
        return type(number) is int and low <= number <= high

    def _rows_look_sound(self, tasks: Sequence[Task], bounds: Bounds) -> bool:
        known = self._rows.get
        try:
            fresh = [task for task in tasks if known(task.chunks) != task.coefficients]
        except (TypeError, ValueError):  # lists, arrays
            return False
        if not fresh:
            return True
        if set(map(type, [of for task in fresh for of in (task.chunks, task.coefficients)])) != {tuple}:
            return False
        lengths = [len(task.chunks) for task in fresh]
        if min(lengths) == 0 or lengths != [len(task.coefficients) for task in fresh]:
            return False
        chunks = list(chain.from_iterable([task.chunks for task in fresh]))
        rows = list(chain.from_iterable([task.coefficients for task in fresh]))
        if set(map(type, chunks)) != {int} or set(map(type, rows)) != {float}:
            return False
        if min(chunks) < 0 or max(chunks) >= bounds.chunks:
            return False
        if not ((set(rows) <= {0.0, 1.0}) if bounds.ones else np.isfinite(rows).all()):
            return False
        if any(length > 1 and len(set(task.chunks)) < length for task, length in zip(fresh, lengths, strict=True)):
            return False
        self._remember(fresh)
        return True

    def _remember(self, tasks: Sequence[Task]) -> None:
        if len(self._rows) + len(tasks) > MOST_ROWS:
            self._rows.clear()
        if len(tasks) <= MOST_ROWS:
            self._rows |= {task.chunks: task.coefficients for task in tasks}


def whole(value: object, what: str) -> int:
    """`value` as a plain whole number. Raises: Mistake that names it `what`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise Mistake(f"{what} is {value!r} ({_kind(value)}), not a whole number")
    return int(value)


def number(value: object, what: str) -> float:
    """`value` as a plain finite number. Raises: Mistake that names it `what`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Mistake(f"{what} is {value!r} ({_kind(value)}), not a number")
    if not isfinite(value):
        raise Mistake(f"{what} is {float(value):g}, which is not finite")
    return float(value)


def _worker(worker: object, bounds: Bounds) -> int:
    found = whole(worker, "a worker")
    if not 0 <= found < bounds.workers:
        raise Mistake(f"assign names worker {found}, but there are workers 0 to {bounds.workers - 1}")
    return found


def _slots(worker: object, slots: object, bounds: Bounds) -> Slots:
    if isinstance(slots, Task) or not isinstance(slots, Sequence):
        raise Mistake(f"worker {worker}: its slots are {_kind(slots)}, not a tuple of Task or None")
    return tuple(_task(task, f"worker {worker}, slot {slot}", bounds) for slot, task in enumerate(slots))


def _task(task: object, where: str, bounds: Bounds) -> Task | None:
    if task is None:
        return None
    if not isinstance(task, Task):
        raise Mistake(f"{where} holds {_kind(task)}, not a Task or None")
    job = whole(task.job, f"{where}: the job")
    if not bounds.first_job <= job <= bounds.last_job:
        raise Mistake(f"{where} is for job {job}, but in this round only {_jobs(bounds)} can be worked on")
    message = whole(task.message, f"{where}: the message")
    if message < 0:
        raise Mistake(f"{where}: the message is {message}, but messages count from 0")
    chunks, coefficients = _row(task, where, bounds)
    return replace(task, job=job, message=message, chunks=chunks, coefficients=coefficients)


def _row(task: Task, where: str, bounds: Bounds) -> tuple[tuple[int, ...], tuple[float, ...]]:
    for name, part in (("chunks", task.chunks), ("coefficients", task.coefficients)):
        if not isinstance(part, (Sequence, np.ndarray)):
            raise Mistake(f"{where}: its {name} are {_kind(part)}, not a tuple")
    if not len(task.chunks):
        raise Mistake(f"{where}: its task has no chunks: leave the slot None, or the worker out")
    if len(task.chunks) != len(task.coefficients):
        raise Mistake(
            f"{where}: {len(task.coefficients)} coefficients for {len(task.chunks)} chunks, the first of which is "
            f"chunk {task.chunks[0]}: each chunk needs one"
        )
    chunks = tuple(_chunk(chunk, where, bounds) for chunk in task.chunks)
    twice = next((chunk for place, chunk in enumerate(chunks) if chunk in chunks[:place]), None)
    if twice is not None:
        raise Mistake(f"{where}: chunk {twice} stands in its task twice: add the coefficients up")
    pairs = zip(chunks, task.coefficients, strict=True)
    coefficients = tuple(number(of, f"{where}: the coefficient of chunk {chunk}") for chunk, of in pairs)
    for chunk, of in zip(chunks, coefficients, strict=True):
        if bounds.ones and of not in (0.0, 1.0):
            raise Mistake(f"{where}: the coefficient of chunk {chunk} is {of:g}, but binary = True promises 0 or 1")
    return chunks, coefficients


def _chunk(chunk: object, where: str, bounds: Bounds) -> int:
    found = whole(chunk, f"{where}: a chunk")
    if not 0 <= found < bounds.chunks:
        raise Mistake(f"{where}: chunk {found} does not exist: chunk_sizes has chunks 0 to {bounds.chunks - 1}")
    return found


def _jobs(bounds: Bounds) -> str:
    if bounds.first_job > bounds.last_job:
        return "no job"
    if bounds.first_job == bounds.last_job:
        return f"job {bounds.first_job}"
    return f"jobs {bounds.first_job} to {bounds.last_job}"


def _kind(value: object) -> str:
    """`a list`, `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
