"""A worker's share of each model's batch, computed once in this process by the worker's own code: what does it take?

Calls no worker: the code reads from memory. Its first answer is a cold one and tells whether the share can be computed
at all; the ones after that are timed, each at a snapshot that the worker has not seen. Read next: `job.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import torch
from msgspec import structs

from gradmux.lambda_worker.contract import Request, Weights, encode_request, parse_reply
from gradmux.lambda_worker.layout import encode_manifest
from gradmux.lambda_worker.objects import MissingObject
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.estimate.calls import Seen
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.runs.aggregation import Aggregation
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.schemes.scheme import Scheme, Skip
from gradmux.orchestrator.store import Keys, MemoryStore, put_once
from gradmux.orchestrator.training.data import DataRef
from gradmux.orchestrator.training.models import ModelPlan, kind_of
from gradmux.orchestrator.training.packing import Packed
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.trainer import TorchTrainer

ENOUGH_S, REPEATS = 0.2, 9
"""one model is timed so often at most, for so long"""
IN_ALL_S = 4.0
"""models that have not been timed by then are taken to need as much for each parameter as the slowest that was"""
KEYS, BUCKET = Keys("trial"), "trial"


@dataclass(frozen=True, slots=True)
class Share:
    """What one task took."""

    load: float
    """of it, a fraction of one batch"""
    seconds: float
    parameters: int
    """p of its model"""
    puts: int = 0
    """requests to S3"""
    gets: int = 0
    moved_bytes: int = 0
    """to and from S3"""
    waits: int = 0
    """how often it waits for an answer of S3, of several requests at once for one"""
    stored: bool = False
    """snapshots of the model lie in S3, for they are too large for a request"""

    def of(self, parameters: int) -> Share:
        """As it would be for a model of another size."""
        return replace(self, parameters=parameters, seconds=self.seconds * parameters / self.parameters)


@dataclass(frozen=True, slots=True)
class Trial:
    """What one task takes."""

    shares: tuple[Share, ...]
    """by model"""
    in_cloud: bool
    """workers sum the gradients"""
    fetches: tuple[int, ...] = ()
    """bytes of each request by which a worker fetches all rows, once; none where it reads the rows that it needs"""


class Objects:
    """`ObjectStore` over memory: what a trainer has put there, and the shards of the job's rows."""

    def __init__(self, store: MemoryStore, rows: Packed) -> None:
        self._store, self._rows = store, rows
        self.begin()

    def begin(self) -> None:
        """Counts from 0 again."""
        self.puts = self.gets = self.ranges = self.moved_bytes = 0

    def get(self, key: str) -> bytes:
        self.gets += 1
        try:
            body = self._store.get(key)
        except FileNotFoundError as error:
            raise MissingObject(f"object {key!r} does not exist") from error
        self.moved_bytes += len(body)
        return body

    def get_range(self, key: str, lo: int, hi: int) -> bytes:
        self.gets += 1
        self.ranges += 1
        self.moved_bytes += hi - lo
        return self._rows.get_range(key, lo, hi)

    def put(self, key: str, body: bytes) -> None:
        self.puts += 1
        self.moved_bytes += len(body)
        self._store.put(key, body)


def try_shares(prepared: Prepared, scheme: Scheme, seen: Seen) -> Trial:
    """What the heaviest task that was `seen` takes with each model.

    Raises: ConfigError that names the model when a worker could not compute it.
    """
    with one_thread(), TemporaryDirectory() as folder:
        bench = _Bench(prepared, scheme, seen, Path(folder))
        shares = tuple(_in_time(prepared.models, bench))
        return Trial(shares, bench.aggregation.shelf is not None, tuple(bench.fetches))


def _in_time(models: Sequence[ModelPlan], bench: _Bench) -> list[Share]:
    """Equal models are timed once."""
    shares: dict[Any, Share] = {}
    until_s = time.perf_counter() + IN_ALL_S
    for index, plan in enumerate(models):
        if kind_of(plan) not in shares and (not shares or time.perf_counter() < until_s):
            shares[kind_of(plan)] = bench.share(index)
    slowest = max(shares.values(), key=lambda share: share.seconds / share.parameters)
    return [shares.get(kind_of(plan)) or slowest.of(bench.trainer.size(index)) for index, plan in enumerate(models)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch computes as in a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Bench:
    """A worker with all that it needs in memory."""

    def __init__(self, prepared: Prepared, scheme: Scheme, seen: Seen, folder: Path) -> None:
        from gradmux.lambda_worker.handler import Worker

        self._prepared, self._seen = prepared, seen
        plan = JobPlan(prepared.plan.models, prepared.plan.steps)  # of which the first jobs are step 0 of each model
        self._store = MemoryStore()
        self.trainer = TorchTrainer(prepared.models, plan, store=self._store, keys=KEYS)
        self.aggregation = Aggregation.of(prepared, self.trainer)
        rows = prepared.train.packed
        self._objects = Objects(self._store, rows)
        manifest = encode_manifest(rows.manifest)
        self._data = put_once(self._store, Keys.data_manifest(manifest), manifest)
        self._worker = Worker(lambda _: self._objects, folder)
        materials = RunMaterials(
            keys=KEYS,
            bucket=BUCKET,
            data=DataRef(self._data, prepared.train.rows),
            specs=self.trainer.put_specs(),
            orders=[prepared.order] * plan.models,
            weights=self.trainer.weights,
            seeds=self.trainer.seeds,
            wire=Wire(prepared.wire_dtype(scheme), self.aggregation.mode),
            passes=prepared.passes,
        )
        self._requests = RequestBuilder(materials, plan, scheme.chunk_sizes)

    def share(self, model: int) -> Share:
        """The task for this model, timed."""
        request = self._request(model)
        self._answer(request, model)
        objects = self._objects
        times: list[float] = []
        began_s = time.perf_counter()
        while not times or (len(times) < REPEATS and time.perf_counter() < began_s + ENOUGH_S):
            fresh = self._at_fresh_snapshot(request, len(times))
            objects.begin()
            waits = self.waits
            start_s = time.process_time()  # of the processor, which others may share here, but not in Lambda
            self._answer(fresh, model)
            times.append(time.process_time() - start_s)
        stored = request.tasks[0].weights.key is not None
        size = self.trainer.size(model)
        waits = objects.puts + objects.gets - objects.ranges + self.waits - waits
        return Share(
            load=self._seen.load,
            seconds=median(times),
            parameters=size,
            puts=objects.puts,
            gets=objects.gets,
            moved_bytes=objects.moved_bytes,
            waits=waits,
            stored=stored,
        )

    @property
    def waits(self) -> int:
        """How often the worker has waited for rows that it read by ranges."""
        return self._worker.sandbox(BUCKET).dataset(self._data).waits

    @property
    def fetches(self) -> list[int]:
        """Bytes of each request by which it fetches all rows."""
        return self._worker.sandbox(BUCKET).dataset(self._data).fetches

    def _request(self, model: int) -> Request:
        """Job number `model` is the model's first."""
        self.trainer.publish(model)
        task = replace(self._seen.task, job=model)
        if task.skip is not None:
            task = replace(task, skip=Skip(model, -1.0))  # no distance is less: it is computed and sent
        return self._requests.build(Invocation(0, 0, 1, (task,), self._seen.load))

    def _at_fresh_snapshot(self, request: Request, number: int) -> Request:
        (task,) = request.tasks
        if task.weights.key is None:
            return request
        key = f"{number}/{task.weights.key}"
        self._store.put(key, self._store.get(task.weights.key))
        return structs.replace(request, tasks=(structs.replace(task, weights=Weights(key=key)),))

    def _answer(self, request: Request, model: int) -> None:
        """From the event to the reply's JSON. Raises ConfigError when the task failed."""
        reply = orjson.dumps(self._worker.answer(orjson.loads(encode_request(request))))
        (result,) = parse_reply(reply).results
        if result.status != "ok":
            reason = (result.error or result.status).partition("\n")[0]
            rows = request.tasks[0].rows
            raise ConfigError(f"model {self._prepared.models[model].name!r} cannot compute {rows} rows: {reason}")
