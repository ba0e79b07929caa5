"""A backend as a stranger writes one: workers are processes of this machine, the store is a folder. No HTTP, no AWS.

    [cluster]
    backend = "processes"

    [processes]
    start_method = "spawn"

Each process answers one request at a time with the code that runs on Lambda. The page docs/adding-a-backend.md shows
this file; `test_backends.py` holds it to the contract of all backends.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from gradmux.orchestrator.backends import Examination, FleetPlan, Limits, Pace, PlaceNote
from gradmux.orchestrator.config import JobConfig, Section
from gradmux.orchestrator.delays.calls import CallDelays, How
from gradmux.orchestrator.findings import Finding, failure, well
from gradmux.orchestrator.fleets.future_fleet import FutureFleet
from gradmux.orchestrator.folder_store import FolderObjects, FolderStore
from gradmux.orchestrator.prices import Prices

NAME = "processes"
FREE = Prices.free()


class ProcessesSection(Section):
    """How worker processes are started."""

    start_method: Literal["spawn", "forkserver"] = "spawn"
    """as `multiprocessing` names it"""


# --- in the workers ----------------------------------------------------------------------------------------------

_worker: Any = None


def start(parent: int) -> None:
    """Once in each process: the worker of a Lambda sandbox, whose store is a folder."""
    global _worker  # noqa: PLW0603
    from gradmux.lambda_worker.handler import Worker

    folder = tempfile.TemporaryDirectory(prefix=f"gradmux-{parent}-")
    _worker = Worker(lambda bucket: FolderObjects(Path(bucket)), Path(folder.name)), folder


def answer(request: bytes) -> bytes:
    """One request, as JSON, and its reply."""
    return orjson.dumps(_worker[0].answer(orjson.loads(request)))


# --- in the client -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessesPlace:
    """`backends.Place`"""

    pool_of_processes: ProcessPoolExecutor
    folder: Path
    timeout_s: float
    pool: str = NAME

    @property
    def bucket(self) -> str:
        return str(self.folder)

    @property
    def root(self) -> str:
        return str(self.folder)

    def describe(self) -> str:
        return f"processes of this machine, store {self.folder}"

    def note(self) -> PlaceNote:
        return PlaceNote(NAME, self.timeout_s, own={"folder": str(self.folder)})

    def ended(self) -> str:
        return "" if self.folder.exists() else f"the store {self.folder} is gone"

    def store(self) -> FolderStore:
        return FolderStore(self.folder)

    def fleet(self, plan: FleetPlan) -> FutureFleet:
        return FutureFleet(
            self._submit, plan.requests, plan.store, run=plan.run, timeout_s=plan.timeout_s, shelf=plan.shelf
        )

    def _submit(self, request: bytes) -> Future[bytes]:
        return self.pool_of_processes.submit(answer, request)


class ProcessesBackend:
    """`backends.Backend`"""

    name = NAME
    limits = Limits(concurrency=64)
    prices = FREE
    sections: Mapping[str, type[Section]] = {NAME: ProcessesSection}
    mirrored = False
    workers_outlive_run = False

    def validate(self, job: JobConfig) -> None:
        """All that its section can say goes with everything."""

    def prepare(self, job: JobConfig, folder: Path) -> JobConfig:
        return job

    @contextmanager
    def open(self, job: JobConfig, life: int = 0) -> Iterator[ProcessesPlace]:
        method = job.section(NAME, ProcessesSection).start_method
        count = min(job.cluster.most_workers, len(os.sched_getaffinity(0)))
        with (
            tempfile.TemporaryDirectory(prefix="gradmux-store-") as folder,
            ProcessPoolExecutor(
                count, multiprocessing.get_context(method), initializer=start, initargs=(os.getpid(),)
            ) as pool,
        ):
            try:
                yield ProcessesPlace(pool, Path(folder), job.cluster.timeout_s)
            finally:
                pool.shutdown(cancel_futures=True)

    def reopen(self, note: PlaceNote) -> FolderStore:
        return FolderStore(Path(note.own["folder"]))

    def delays(self, job: JobConfig) -> CallDelays:
        return CallDelays("none", How.LONGER, np.zeros((1, 1)))

    def pace(self, job: JobConfig) -> Pace:
        return Pace()

    def examine(self, asked: Examination) -> Iterator[Finding]:
        cores, wanted = len(os.sched_getaffinity(0)), asked.workers or 1
        if asked.job is not None:
            wanted = asked.workers or asked.job.cluster.most_workers
        if wanted > (self.limits.concurrency or wanted):
            yield failure("workers", f"{wanted} are too many", f"set cluster.workers = {self.limits.concurrency}")
        else:
            yield well("workers", f"{wanted}, on {cores} processors")


PROCESSES = ProcessesBackend()
