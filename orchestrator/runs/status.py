"""What state a run is in, from its folder alone: who holds the lock, what the record says last, what files are there.

    created      submitted, never begun              interrupted  its process died: no end in the record
    running      a process holds the lock            stopped      ended early, in order
    cancelling   the same, and it was asked to end   cancelled    ended because somebody cancelled it
    done         there is a result (its process may  failed       ended by an error of ours or the job's
                 still wait for the last bills)
    damaged      a file of it cannot be read

All but `running`, `cancelling` and `done` can be resumed (`damaged` after a file was mended). Knows no backend.
Read next: `index.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from gradmux.orchestrator.errors import ConfigError, GradmuxError
from gradmux.orchestrator.record import RecordError
from gradmux.orchestrator.runs.history import STEPS, Follower, History
from gradmux.orchestrator.runs.last_words import last_words
from gradmux.orchestrator.runs.layout import require_layout
from gradmux.orchestrator.runs.life import FolderError, Life, cancelled_epoch, last_life
from gradmux.orchestrator.runs.lock import is_held
from gradmux.orchestrator.runs.paths import RunPaths

FULL_BYTES = 1 << 20
"""A disk with less room than this is called full."""


class State(StrEnum):
    """See the table above."""

    CREATED = "created"
    RUNNING = "running"
    CANCELLING = "cancelling"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DONE = "done"
    DAMAGED = "damaged"

    @property
    def active(self) -> bool:
        """Does a process run it?"""
        return self in (State.RUNNING, State.CANCELLING)

    @property
    def resumable(self) -> bool:
        """Would `resume` go on with it?"""
        return not self.active and self not in (State.DONE, State.DAMAGED)


@dataclass(frozen=True, slots=True)
class ModelProgress:
    """One model of a run."""

    name: str
    steps: int
    """done"""
    of: int
    train_loss: float | None
    """of the last step"""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run now. Times in seconds."""

    run: str
    state: State
    reason: str = ""
    """why it is so, in one line"""
    name: str = ""
    """of the job"""
    backend: str = ""
    scheme: str = ""
    epoch: int = -1
    """of the life that began last"""
    lives: int = 0
    created: str = ""
    """when the last life began, UTC"""
    process: str = ""
    """pid and host of the life that began last; whether it lives is what `state` says"""
    models: tuple[ModelProgress, ...] = ()
    rounds: int = 0
    invocations: int = 0
    failed: int = 0
    """invocations that brought nothing"""
    in_flight: int = 0
    """invocations that had not come back, as far as the record knows"""
    redone: int = 0
    """gradients computed again after a life ended before its next checkpoint"""
    unrecorded: int = 0
    """gradients that were applied, but that the record has lost: times and cost lack them"""
    billed_s: float = 0.0
    wall_s: float = 0.0
    folder: str = ""

    @property
    def share(self) -> float:
        """Of all steps, 0 to 1."""
        total = sum(model.of for model in self.models)
        return sum(model.steps for model in self.models) / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For --json and the index."""
        return {**asdict(self), "state": self.state.value, "resumable": self.state.resumable, "share": self.share}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunStatus:
        """What `to_dict` gave."""
        own = {name: value for name, value in fields.items() if name not in ("resumable", "share")}
        models = tuple(ModelProgress(**model) for model in own["models"])
        return cls(**{**own, "state": State(own["state"]), "models": models})


def status_of(paths: RunPaths, follower: Follower | None = None) -> RunStatus:
    """The run now; a `follower` that has read the record before need not read it again."""
    held = is_held(paths.lock)
    try:
        require_layout(paths)
        life, cancelled = last_life(paths), cancelled_epoch(paths)
        history = (follower or Follower(paths.record)).read()
        job = _job(paths)
    except (FolderError, RecordError, ConfigError) as error:
        state = State.RUNNING if held else State.DAMAGED
        return RunStatus(paths.run, state, reason=str(error), folder=str(paths.folder))
    state = _state(paths, held, life, cancelled, history)
    return _told(paths, state, life, history, job)


def read_result(paths: RunPaths) -> dict[str, Any]:
    """The result of a run that is done. Raises FolderError, or GradmuxError that says how far it is."""
    if not paths.result.exists():
        status = status_of(paths)
        hint = f"; `gradmux resume {paths.run}` goes on with it" if status.state.resumable else ""
        raise GradmuxError(
            f"{paths.run} has no results yet: it is {status.state}, {100 * status.share:.0f} % done{hint}"
        )
    try:
        result = json.loads(paths.result.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FolderError(f"{paths.result} cannot be read: remove the file, then resume the run") from error
    if not isinstance(result, dict) or not _is_result(result):
        raise FolderError(f"{paths.result} holds no result: remove the file, then resume the run")
    return result


def _state(paths: RunPaths, held: bool, life: Life | None, cancelled: int, history: History) -> State:
    epoch = -1 if life is None else life.epoch
    if held and _is_billing(paths):
        return State.DONE
    if held:
        return State.CANCELLING if cancelled >= max(epoch, 0) else State.RUNNING
    if paths.result.exists():
        return State.DONE
    if cancelled >= max(epoch, 0):
        return State.CANCELLED
    if life is None:
        return State.CREATED
    ended = _how_it_ended(paths, epoch, history)
    if ended is None:
        return State.INTERRUPTED
    return State(ended[0]) if ended[0] in ("stopped", "cancelled") else State.FAILED


def _how_it_ended(paths: RunPaths, epoch: int, history: History) -> tuple[str, str] | None:
    """State and reason of the last life's end, by its record or its last words; None where neither says so."""
    end, words = history.end, last_words(paths.last_words)
    if end is not None and history.header is not None and history.header.epoch == epoch and end.state != "done":
        return end.state, end.reason
    return (words.state, words.reason) if words is not None and words.epoch == epoch else None


def _is_billing(paths: RunPaths) -> bool:
    """Has the life that goes on written its results, and only waits for its last bills?"""
    try:
        return paths.result.stat().st_mtime_ns > paths.life.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def _told(paths: RunPaths, state: State, life: Life | None, history: History, job: Mapping[str, Any]) -> RunStatus:
    header = history.header
    names = () if header is None else header.names or tuple(map(str, range(header.models)))
    return RunStatus(
        run=paths.run,
        state=state,
        reason=_reason(paths, state, -1 if life is None else life.epoch, history),
        name=str(job.get("name", "")),
        backend=str(job.get("cluster", {}).get("backend", "")),
        scheme=str(job.get("scheme", {}).get("name", "")),
        epoch=-1 if life is None else life.epoch,
        lives=history.lives,
        created="" if life is None else life.started,
        process="" if life is None else f"{life.pid} on {life.host}",
        models=tuple(
            ModelProgress(name, steps, 0 if header is None else header.extra.get(STEPS, header.steps), loss)
            for name, steps, loss in zip(names, history.steps, history.losses, strict=True)
        ),
        rounds=history.rounds,
        invocations=history.invocations,
        failed=history.failed,
        in_flight=history.in_flight,
        redone=history.redone,
        unrecorded=history.unrecorded,
        billed_s=history.billed_s,
        wall_s=history.wall_s,
        folder=str(paths.folder),
    )


def _reason(paths: RunPaths, state: State, epoch: int, history: History) -> str:
    if state is State.INTERRUPTED:
        full = "; its disk is full" if _is_full(paths) else ""
        return f"its process has ended without a word: killed, or the machine went down{full}"
    ended = _how_it_ended(paths, epoch, history)
    told = ended[1].partition("\n")[0] if ended is not None and state.resumable else ""
    return told if told.isprintable() else ascii(told)


def _is_full(paths: RunPaths) -> bool:
    try:
        return shutil.disk_usage(paths.folder).free < FULL_BYTES
    except OSError:
        return False


def _job(paths: RunPaths) -> Mapping[str, Any]:
    try:
        job = json.loads(paths.job.read_bytes())
        if isinstance(job, dict) and all(isinstance(job.get(key, {}), dict) for key in ("cluster", "scheme")):
            return job
    except (OSError, ValueError, RecursionError) as error:
        raise FolderError(f"{paths.job} cannot be read: restore the file, or submit the job again") from error
    raise FolderError(f"{paths.job} does not describe a job: restore the file, or submit the job again")


def _is_result(result: Mapping[str, Any]) -> bool:
    wanted = {"run": str, "scheme": str, "params": dict, "models": list, "cost": dict, "decode": dict, "record": str}
    return bool(result.get("models")) and all(isinstance(result.get(key), kind) for key, kind in wanted.items())
