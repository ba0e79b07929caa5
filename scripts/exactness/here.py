"""One case in this process: the real trial, trainer, requests, worker, loop and schemes, without HTTP.

Workers answer at once, but for one in every round, which answers a round later where the scheme can do without it. So
redundant results, late results and decodes from other workers than the first are part of every comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import orjson
import torch

from gradmux.lambda_worker.handler import Worker
from gradmux.lambda_worker.objects import MissingObject
from gradmux.orchestrator.auto import Choice
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.fleets.future_fleet import FutureFleet
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import MemoryRecord
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.trainer import TorchTrainer

SCHEMES: Sequence[tuple[str, Mapping[str, int | float | str], int]] = (
    ("uncoded", {}, 2),
    ("uncoded", {}, 4),
    ("gc", {"s": 1}, 2),
    ("gc", {"s": 1}, 4),
    ("gc", {"s": 1, "code": "cyclic"}, 3),
    ("gc", {"s": 2, "code": "cyclic"}, 5),
)
"""scheme, parameters, workers: three codes, each on two numbers of workers"""
STEPS, BATCH = 3, 64
TRIAL_LOGGER = "gradmux.orchestrator.training.trial.kinds"


@dataclass(frozen=True)
class Case:
    """One model with its loss and rows."""

    name: str
    kind: str
    factory: Callable[..., Any]
    x: Any
    y: Any
    loss: Any = "cross_entropy"
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"name": "SGD", "lr": 0.05})
    training: Mapping[str, Any] = field(default_factory=dict)
    scheme: Mapping[str, Any] = field(default_factory=lambda: {"name": "uncoded"})


@dataclass(frozen=True)
class Verdict:
    """What became of a case."""

    refused: str = ""
    """the line; empty when it was trained"""
    warning: str = ""
    fixed: bool = False
    """are its passes fixed?"""
    differences: Mapping[str, float] = field(default_factory=dict)
    """scheme and workers -> largest relative difference from the plain loop"""
    trial_s: float = 0.0

    @property
    def difference(self) -> float:
        return max(self.differences.values(), default=0.0)


class _Objects:
    """A store as workers see it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get(self, key: str) -> bytes:
        if not self._store.exists(key):
            raise MissingObject(key)
        return self._store.get(key)

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        return self.get(key)[lo:hi]

    def put(self, key: str, body: bytes) -> None:
        self._store.put(key, body)


class _Workers:
    """Answers requests; worker number `round % n` of each round a round later, if it may be late."""

    def __init__(self, store: MemoryStore, folder: Path, workers: int, may_be_late: bool) -> None:
        self._sandboxes = [Worker(lambda _: _Objects(store), folder / str(number)) for number in range(min(2, workers))]
        self._workers, self._may_be_late = workers, may_be_late
        self._late: list[tuple[int, bytes, Future[bytes]]] = []

    def submit(self, body: bytes) -> Future[bytes]:
        asked, future = orjson.loads(body), Future[bytes]()
        turn, worker = asked["round"], asked["worker"]
        due = [each for each in self._late if each[0] < turn]
        self._late = [each for each in self._late if each[0] >= turn]
        for _, late_body, late in due:
            late.set_result(self._answer(late_body))
        if self._may_be_late and worker == turn % self._workers:
            self._late.append((turn, body, future))
        else:
            future.set_result(self._answer(body))
        return future

    def _answer(self, body: bytes) -> bytes:
        asked = orjson.loads(body)
        return orjson.dumps(self._sandboxes[asked["worker"] % len(self._sandboxes)].answer(asked))

    def end(self) -> None:
        for _, body, late in self._late:
            late.set_result(self._answer(body))
        self._late = []


def judge(case: Case, schemes: Sequence[Any] = SCHEMES, steps: int = STEPS) -> Verdict:
    """Tries and trains a case. Raises whatever goes wrong after the trial: that must not happen."""
    began = perf_counter()
    try:
        with _warnings() as said:
            prepared = prepared_of(case, steps)
    except ConfigError as error:
        return Verdict(refused=str(error), trial_s=perf_counter() - began)
    trial_s = perf_counter() - began
    reference = Reference.of(prepared)
    found = {}
    for name, params, workers in schemes:
        under = prepared.under(Choice(name, params, workers, "asked for"), prepared.plan)
        trained = play(under)
        label = " ".join([name, *(f"{key}={value}" for key, value in params.items()), f"n={workers}"])
        found[label] = reference.difference({plan.name: trained.module(0) for plan in prepared.models})
    fixed = any(plan.pass_rows is not None for plan in prepared.models)
    return Verdict("", " ".join(said), fixed, found, trial_s)


def prepared_of(case: Case, steps: int = STEPS) -> Prepared:
    """The job of a case. Raises: ConfigError, which is how it is refused."""
    tree = {
        "name": "case",
        "scheme": dict(case.scheme),
        "cluster": {"workers": 2, "backend": "local"},
        "data": {"batch_size": BATCH, "train": "arrays"},
        "training": {"steps": steps, "loss": "cross_entropy", **case.training},
        "models": [{"name": "model", "factory": "of.python:model", "optimizer": dict(case.optimizer)}],
    }
    loss = None if isinstance(case.loss, str) else case.loss
    if isinstance(case.loss, str):
        tree["training"]["loss"] = case.loss  # type: ignore[index]
    materials = Materials(factories={"model": case.factory}, loss=loss, train=(case.x, case.y))
    with TemporaryDirectory() as folder:
        return prepare_job(parse_job(tree, source="case"), materials, Path(folder), lambda _: MemoryStore())


def play(prepared: Prepared) -> TorchTrainer:
    """Trains the job's models to the end."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with TemporaryDirectory() as folder:
            return _play(prepared, Path(folder))
    finally:
        torch.set_num_threads(threads)


def _play(prepared: Prepared, folder: Path) -> TorchTrainer:
    store, keys, scheme = MemoryStore(), Keys("case"), prepared.scheme()
    trainer = TorchTrainer(prepared.models, prepared.plan, store=store, keys=keys)
    materials = RunMaterials(
        keys=keys,
        bucket="bucket",
        data=put_dataset(store, prepared.train),
        specs=trainer.put_specs(),
        orders=[prepared.order] * prepared.plan.models,
        weights=trainer.weights,
        seeds=trainer.seeds,
        wire=Wire(prepared.wire_dtype(scheme)),
        passes=prepared.passes,
    )
    requests = RequestBuilder(materials, prepared.plan, scheme.chunk_sizes)
    workers = _Workers(store, folder, scheme.workers, may_be_late=scheme_name(prepared) != "uncoded")
    fleet = FutureFleet(workers.submit, requests, store, run="case", timeout_s=60.0)
    loop = Loop(
        plan=prepared.plan,
        rounds=prepared.rounds(scheme),
        fleet=fleet,
        trainer=trainer,
        recorder=MemoryRecord(),
    )
    loop.run()
    workers.end()
    loop.drain(10.0)
    fleet.close()
    return trainer


def scheme_name(prepared: Prepared) -> str:
    return prepared.config.scheme.name


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Within it, what the trial warns of."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, logger = Handler(logging.WARNING), logging.getLogger(TRIAL_LOGGER)
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


__all__ = ["SCHEMES", "Case", "Verdict", "judge", "play", "prepared_of"]
