"""One case in this process: the real trial, trainer, requests, worker, loop and schemes, without HTTP.

Workers answer at once, but for one in every round, which answers a round later where the scheme can do without it, and
else as soon as nothing else is left to wait for. So redundant results, late results and decodes from other workers than
the first are part of every comparison. Sums are made by the client, as results arrive, or in the store by workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.ports import Trainer
from gradmux.orchestrator.record import Decoded, Header, MemoryRecord
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.policy import divided_by
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.cloud_sum import CloudSums, CloudTrainer
from gradmux.orchestrator.training.cloud_sum import Setting as Summing
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.stored import Shelf
from gradmux.orchestrator.training.streamed_sums import StreamedSums
from gradmux.orchestrator.training.trainer import TorchTrainer


@dataclass(frozen=True)
class Setting:
    """A scheme on some workers."""

    scheme: str
    params: Mapping[str, int | float | str]
    workers: int
    models: int = 1
    """side by side: more than T, which is how many rounds a job takes beyond its own"""

    @property
    def told(self) -> str:
        """Scheme and parameters."""
        return " ".join([self.scheme, *(f"{key}={value}" for key, value in self.params.items())])

    @property
    def label(self) -> str:
        return f"{self.told} n={self.workers}"


SCHEMES = (
    Setting("uncoded", {}, 2),
    Setting("uncoded", {}, 4),
    Setting("gc", {"s": 1}, 2),
    Setting("gc", {"s": 1}, 4),
    Setting("gc", {"s": 1, "code": "cyclic"}, 3),
    Setting("gc", {"s": 2, "code": "cyclic"}, 5),
    Setting("m-sgc", {"B": 1, "W": 2, "lambda": 2}, 4, models=2),
    Setting("m-sgc", {"B": 2, "W": 3, "lambda": 3, "code": "cyclic"}, 5, models=4),
    Setting("sr-sgc", {"B": 1, "W": 2, "lambda": 2}, 4, models=2),
    Setting("sr-sgc", {"B": 2, "W": 3, "lambda": 3, "code": "cyclic"}, 6, models=3),
)
"""codes of one round and schemes whose jobs take more, each on two numbers of workers; neighbours belong together"""
STEPS, BATCH = 3, 64
SLICE_BYTES = 64
"""of a sum in the cloud: so small that every sum is cut"""
IDLE_LOOKS, POLL_S = 2, 0.05
"""So many times the loop looks around without anything to do, so many seconds apart, before late workers answer."""
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
    metrics: Sequence[Callable[..., Any] | str] = ()


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
    """Answers requests; worker number `round % n` of each round a round later, if it may be late and can be spared."""

    def __init__(self, store: MemoryStore, folder: Path, workers: int, may_be_late: bool) -> None:
        self._sandboxes = [Worker(lambda _: _Objects(store), folder / str(number)) for number in range(min(2, workers))]
        self._workers, self._may_be_late = workers, may_be_late
        self._late: list[tuple[int, bytes, Future[bytes]]] = []
        self._looks = 0
        """of the loop, since anything was sent"""

    def look(self) -> None:
        """Called between events, and while nothing happens: then late ones are what is waited for."""
        self._looks += 1
        if self._looks > self._workers + IDLE_LOOKS:
            self.end()

    def submit(self, body: bytes) -> Future[bytes]:
        self._looks = 0
        asked, future = orjson.loads(body), Future[bytes]()
        if asked["op"] == "reduce":
            future.set_result(self._answer(body))
            return future
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
        """Those that are late answer now."""
        waiting, self._late = self._late, []
        for _, body, late in waiting:
            late.set_result(self._answer(body))


def judge(case: Case, schemes: Sequence[Setting] = SCHEMES, steps: int = STEPS) -> Verdict:
    """Tries and trains a case. Raises whatever goes wrong after the trial: that must not happen."""
    began = perf_counter()
    try:
        with _warnings() as said:
            prepared = prepared_of(case, steps, max(each.models for each in schemes))
    except ConfigError as error:
        return Verdict(refused=str(error), trial_s=perf_counter() - began)
    trial_s = perf_counter() - began
    reference = Reference.of(prepared)
    found = {each.label: _difference(reference, prepared, each) for each in schemes}
    fixed = any(plan.pass_rows is not None for plan in prepared.models)
    return Verdict("", " ".join(said), fixed, found, trial_s)


def _difference(reference: Reference, prepared: Prepared, setting: Setting) -> float:
    """How far the models of a setting are from the plain loop's, at most."""
    models = prepared.models[: setting.models]
    plan = replace(prepared.plan, models=len(models))
    choice = Choice(setting.scheme, setting.params, setting.workers, "asked for")
    trained = play(replace(prepared, models=models).under(choice, plan)).trainer
    ours = Reference({each.name: reference[each.name] for each in models})
    return ours.difference({each.name: trained.module(index) for index, each in enumerate(models)})


def prepared_of(case: Case, steps: int = STEPS, models: int = 1, backend: str = "local") -> Prepared:
    """The job of a case, so many models of it side by side. Raises: ConfigError, which is how it is refused."""
    names = ["model", *(f"model-{number}" for number in range(2, models + 1))]
    tree = {
        "name": "case",
        "scheme": dict(case.scheme),
        "cluster": {"workers": 2, "backend": backend},
        "data": {"batch_size": BATCH, "train": "arrays"},
        "training": {"steps": steps, "loss": "cross_entropy", **case.training},
        "models": [{"name": name, "factory": "of.python:model", "optimizer": dict(case.optimizer)} for name in names],
    }
    loss = None if isinstance(case.loss, str) else case.loss
    if isinstance(case.loss, str):
        tree["training"]["loss"] = case.loss  # type: ignore[index]
    own = {each.__name__: each for each in case.metrics if not isinstance(each, str)}
    tree["training"]["metrics"] = [*own, *(each for each in case.metrics if isinstance(each, str))]  # type: ignore[index]
    factories = dict.fromkeys(names, case.factory)
    materials = Materials(factories=factories, loss=loss, metrics=own, train=(case.x, case.y))
    with TemporaryDirectory() as folder:
        return prepare_job(parse_job(tree, source="case"), materials, Path(folder), lambda _: MemoryStore())


@dataclass(frozen=True)
class Played:
    """Models that were trained here, and what was recorded meanwhile."""

    prepared: Prepared
    trainer: TorchTrainer
    record: MemoryRecord

    @property
    def decoded(self) -> list[Decoded]:
        """By job."""
        lines = [line for line in self.record.lines if not isinstance(line, Header)]
        return sorted((each for line in lines for each in line.decoded), key=lambda each: each.job)


def play(prepared: Prepared, *, cloud: bool = False) -> Played:
    """Trains the job's models to the end; in the `cloud` workers sum the results, which stay in the store."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with TemporaryDirectory() as folder:
            return _play(prepared, Path(folder), cloud)
    finally:
        torch.set_num_threads(threads)


def _play(prepared: Prepared, folder: Path, cloud: bool) -> Played:
    store, keys, scheme, record = MemoryStore(), Keys("case"), prepared.scheme(), MemoryRecord()
    rows = divided_by(scheme, prepared.order.batch_size)
    trainer = TorchTrainer(prepared.models, prepared.plan, store=store, keys=keys, batch_rows=rows)
    shelf, dtype = Shelf() if cloud else None, prepared.wire_dtype(scheme)
    materials = RunMaterials(
        keys=keys,
        bucket="bucket",
        data=put_dataset(store, prepared.train),
        specs=trainer.put_specs(),
        orders=[prepared.order] * prepared.plan.models,
        weights=trainer.weights,
        seeds=trainer.seeds,
        wire=Wire(dtype, "s3" if cloud else "auto"),
        passes=prepared.passes,
    )
    requests = RequestBuilder(materials, prepared.plan, scheme.chunk_sizes)
    workers = _Workers(store, folder, scheme.workers, may_be_late=scheme_name(prepared) != "uncoded")
    fleet = FutureFleet(workers.submit, requests, store, run="case", timeout_s=60.0, shelf=shelf)
    seen: Trainer = trainer
    if shelf is not None:
        setting = Summing(keys, "bucket", 0, dtype, most=scheme.workers, attempts=1, slice_bytes=SLICE_BYTES)
        seen = CloudTrainer(trainer, CloudSums(setting, fleet.run, store, shelf))
    loop = Loop(
        plan=prepared.plan,
        rounds=prepared.rounds(scheme),
        fleet=fleet,
        trainer=seen,
        recorder=record,
        held=Held(StreamedSums() if shelf is None else None),
        should_stop=workers.look,
        poll_s=POLL_S,
    )
    loop.run()
    workers.end()
    loop.drain(10.0)
    fleet.close()
    return Played(prepared, trainer, record)


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


__all__ = ["SCHEMES", "Case", "Played", "Setting", "Verdict", "judge", "play", "prepared_of"]
