"""An 11 M-parameter model and 64 workers: what moves through the client for each step, summed here and in the cloud.

Real workers of the emulator compute gradients, put them into S3, and, in the second mode, sum them there. Summed by
the client, one gradient for each worker comes to it; in the cloud one for each step. At most 2.2 times the model's size
may move through it then (the snapshot goes out, the sum comes in), and the weights must be the same to the last bit;
the exit status says whether that held. Eight sandboxes serve the 64 workers in turn, to keep memory small.

    python -m benchmarks.cloud_aggregation [--workers 64] [--steps 1]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import boto3
import numpy as np
from torch import nn

from benchmarks.replies import session_of
from gradmux.infra.local import Emulator, EmulatorConfig
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.held import Held
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop
from gradmux.orchestrator.policies import Earliest, Limits
from gradmux.orchestrator.ports import Trainer
from gradmux.orchestrator.record import MemoryRecord
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context
from gradmux.orchestrator.store import Keys, S3Store
from gradmux.orchestrator.training.cloud_sum import CloudSums, CloudTrainer, Setting
from gradmux.orchestrator.training.data import Dataset, put_dataset
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import BatchOrder
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.stored import Shelf
from gradmux.orchestrator.training.streamed_sums import StreamedSums
from gradmux.orchestrator.training.trainer import TorchTrainer

BUCKET = "large-models"
Body = TypeVar("Body", bytes, memoryview)
SANDBOXES, FEATURES, CLASSES = 8, 640, 10
MOST = 2.2


def large_model() -> nn.Module:
    """11.0 M parameters."""
    layers = [nn.Linear(FEATURES, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, CLASSES)]
    return nn.Sequential(*layers)


class CountedStore:
    """A store that counts what goes through it."""

    def __init__(self, store: S3Store) -> None:
        self._store = store
        self.bytes = 0

    def put(self, key: str, data: bytes) -> None:
        self.bytes += len(data)
        self._store.put(key, data)

    def get(self, key: str) -> bytes:
        return self._counted(self._store.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._counted(self._store.get_range(key, start, end))

    def view(self, key: str) -> memoryview:
        return self._counted(self._store.view(key))

    def view_many(self, keys: Sequence[str]) -> Sequence[memoryview]:
        return [self._counted(body) for body in self._store.view_many(keys)]

    def exists(self, key: str) -> bool:
        return self._store.exists(key)

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    def list(self, prefix: str) -> list[str]:
        return self._store.list(prefix)

    def _counted(self, body: Body) -> Body:
        self.bytes += len(body)
        return body


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one mode."""

    moved: float
    """bytes through the client for each step, in sizes of the model"""
    step_s: float
    weights: bytes


def train(emulator: Emulator, store: CountedStore, workers: int, steps: int, cloud: bool) -> Outcome:
    """Trains, and counts from the first dispatch on."""
    plan, keys = JobPlan(models=1, steps=steps), Keys("cloud" if cloud else "client")
    rows = np.random.default_rng(0).normal(size=(workers, FEATURES)).astype(np.float32)
    dataset = Dataset(rows, np.arange(workers) % CLASSES)
    trainer = TorchTrainer([ModelPlan("large", large_model, optimizer_args={"lr": 0.01})], plan, store=store, keys=keys)
    scheme = build_scheme("uncoded", {}, Context(workers=workers, jobs=plan.jobs))
    materials = RunMaterials(
        keys=keys,
        bucket=BUCKET,
        data=put_dataset(store, dataset),
        specs=trainer.put_specs(),
        orders=[BatchOrder(workers, workers)],
        weights=trainer.weights,
        seeds=trainer.seeds,
        wire=Wire(mode="s3" if cloud else "auto"),
    )
    shelf = Shelf() if cloud else None
    fleet = LambdaFleet(
        Function(emulator.config.function, timeout_s=emulator.config.timeout_s),
        RequestBuilder(materials, plan, scheme.chunk_sizes),
        store,
        run=keys.run,
        session=session_of(emulator),
        endpoint_url=emulator.lambda_endpoint,
        shelf=shelf,
    )
    summing: Trainer = trainer
    if shelf is not None:
        setting = Setting(keys, BUCKET, epoch=0, dtype="float32", most=SANDBOXES, attempts=3)
        summing = CloudTrainer(trainer, CloudSums(setting, fleet.run, store, shelf))
    loop = Loop(
        plan=plan,
        rounds=Rounds(scheme, plan, Earliest(), Limits(concurrency=SANDBOXES, split=True)),
        fleet=fleet,
        trainer=summing,
        recorder=MemoryRecord(),
        held=Held(None if cloud else StreamedSums()),
    )
    count = _counter(store, fleet)
    start = time.perf_counter()
    loop.run()
    took_s, moved = time.perf_counter() - start, count()
    fleet.close()
    store.delete(store.list(keys.prefix))
    return Outcome(moved / steps / (4 * trainer.size(0)), took_s / steps, trainer.state(0).weights)


def _counter(store: CountedStore, fleet: LambdaFleet) -> Callable[[], int]:
    """Bytes through the client since now."""

    def through() -> int:
        return store.bytes + sum(fleet.traffic_bytes)

    before = through()
    return lambda: through() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1)
    arguments = parser.parse_args()
    settings = EmulatorConfig(warm=SANDBOXES, concurrency=SANDBOXES, memory_mb=3008, timeout_s=120.0)
    with Emulator(settings) as emulator:
        session = session_of(emulator)
        boto3.Session(botocore_session=session).client("s3", endpoint_url=emulator.s3_endpoint).create_bucket(
            Bucket=BUCKET
        )
        store = S3Store(BUCKET, endpoint_url=emulator.s3_endpoint, session=session)
        outcomes = []
        print(f"{'summed':12} {'through the client':>20} {'s/step':>8}     {arguments.workers} workers", flush=True)
        for name, cloud in (("in the cloud", True), ("here", False)):
            outcomes.append(train(emulator, CountedStore(store), arguments.workers, arguments.steps, cloud))
            print(f"{name:12} {outcomes[-1].moved:14.2f} models {outcomes[-1].step_s:8.1f}", flush=True)
        store.close()
    same = outcomes[0].weights == outcomes[1].weights
    print(f"weights are {'the same to the last bit' if same else 'NOT THE SAME'}; at most {MOST} models may move")
    return not same or outcomes[0].moved > MOST


if __name__ == "__main__":
    sys.exit(main())
