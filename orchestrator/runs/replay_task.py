"""Runs the saved request of a failed task in this process: the same code as in a worker, with the whole traceback.

Knows no emulator and no AWS. Read next: `lambda_worker/tasks.py`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gradmux.lambda_worker.cache import DiskCache
from gradmux.lambda_worker.contract import ContractError, Result, Stretch, Task, parse_request
from gradmux.lambda_worker.objects import MemoryObjects
from gradmux.lambda_worker.sandbox import Sandbox
from gradmux.lambda_worker.stretch import Watch, compute_stretch
from gradmux.lambda_worker.tasks import Bench, Stopwatch, compute_task
from gradmux.orchestrator.runs.failed import FailedTask
from gradmux.orchestrator.runs.life import FolderError
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.data import Dataset, put_dataset

CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one task did here."""

    slot: int
    job: int
    status: str
    """ok, skipped or failed"""
    error: str = ""
    traceback: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def replay(failed: FailedTask, rows: Dataset) -> list[Replayed]:
    """What becomes of each task of the request here. Raises FolderError when it is no request."""
    try:
        request = parse_request(failed.request)
    except ContractError as error:
        raise FolderError(f"the saved request of {failed.name} is damaged: {error}") from error
    objects = MemoryObjects()
    for key, content in {**failed.objects, **_data_objects(rows)}.items():
        objects.put(key, content)
    with TemporaryDirectory() as folder:
        sandbox = Sandbox(objects, DiskCache(Path(folder), CACHE_BYTES))
        bench = Bench(sandbox, request.data or "", request.reply.dtype, Stopwatch())
        watch = Watch(sandbox, None, request.epoch)
        return [
            *(_run(task, partial(compute_task, task, bench)) for task in request.tasks),
            *(_run(each, partial(compute_stretch, each, bench, watch, _not_kept)) for each in request.stretches),
        ]


def _not_kept(step: int, snapshot: bytes) -> str:
    """Snapshots for evaluation are of no use here."""
    return "not kept"


def _run(task: Task | Stretch, compute: Callable[[], Result]) -> Replayed:
    try:
        result = compute()
    except Exception as error:  # the user's code may raise anything: that is what this is for
        told = "".join(traceback.format_exception(error))
        return Replayed(task.slot, task.job, "failed", f"{type(error).__name__}: {error}", told)
    return Replayed(task.slot, task.job, result.status)


def _data_objects(rows: Dataset) -> Mapping[str, bytes]:
    store = MemoryStore()
    put_dataset(store, rows)
    return {key: store.get(key) for key in store.list("")}
