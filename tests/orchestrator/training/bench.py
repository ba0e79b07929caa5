"""A whole run in this process: the real trainer, request builder and worker, and a code played by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch import nn

from gradmux.lambda_worker.contract import decode_result, encode_request, parse_reply
from gradmux.lambda_worker.handler import Worker
from gradmux.lambda_worker.objects import MissingObject
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.data import Dataset, put_dataset
from gradmux.orchestrator.training.gradients import CodedResult
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import BatchOrder, pass_count
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.trainer import TorchTrainer

ROWS = 60


def make_dataset(rows: int = ROWS, features: int = 6, classes: int = 3, dtype: str = "float32") -> Dataset:
    generator = np.random.default_rng(5)
    x = generator.standard_normal((rows, features)).astype(dtype)
    return Dataset(x, (x[:, :classes] + 0.5 * x[:, -classes:]).argmax(1).astype(np.int64))


def mlp(hidden: int = 5, dropout: float = 0.0, norm: bool = False) -> nn.Module:
    layers = [nn.Linear(6, hidden), *([nn.BatchNorm1d(hidden)] if norm else []), nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden, 3))


class Tied(nn.Module):
    """Two layers with one matrix, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.head = nn.Linear(6, 3)
        self.head.bias.requires_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))  # type: ignore[no-any-return]


def tied() -> nn.Module:
    return Tied()


class StoredObjects:
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


@dataclass
class Run:
    """Everything of one run but fleet and scheme."""

    plans: Sequence[ModelPlan]
    folder: Path
    chunk_sizes: Sequence[float] = (0.5, 0.3, 0.2)
    steps: int = 4
    batch_size: int = 20
    dataset: Dataset = field(default_factory=make_dataset)
    wire: Wire = field(default_factory=Wire)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        self.store, self.keys = MemoryStore(), Keys("test-run")
        self.jobs = JobPlan(models=len(self.plans), steps=self.steps)
        self.trainer = TorchTrainer(self.plans, self.jobs, store=self.store, keys=self.keys, **self.options)
        self.order = BatchOrder(self.dataset.rows, self.batch_size, seed=1)
        materials = RunMaterials(
            keys=self.keys,
            bucket="bucket",
            data=put_dataset(self.store, self.dataset),
            specs=self.trainer.put_specs(),
            orders=[self.order] * len(self.plans),
            weights=self.trainer.weights,
            seeds=self.trainer.seeds,
            wire=self.wire,
            passes=pass_count(self.batch_size, self.plans[0].pass_rows),
        )
        self.builder = RequestBuilder(materials, self.jobs, np.array(self.chunk_sizes))
        self.worker = Worker(lambda _: StoredObjects(self.store), self.folder)

    def answer(self, call: Invocation) -> dict[int, CodedResult]:
        """What a worker sends, through JSON both ways."""
        request = encode_request(self.builder.build(call))
        reply = parse_reply(orjson.dumps(self.worker.answer(orjson.loads(request))))
        assert all(result.status == "ok" for result in reply.results), [result.error for result in reply.results]
        return {
            result.slot: CodedResult(*decode_result(result.buffer or self.store.get(result.key or "")))
            for result in reply.results
        }

    def play(self, rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
        """Every job by a code: worker i sends sum_j rows[i][j] g_j, decoded with `weights`. The losses of all steps."""
        return [self.play_job(job, rows, weights) for job in range(self.jobs.jobs)]

    def play_job(self, job: int, rows: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
        self.trainer.publish(job)
        terms = []
        for worker, row in enumerate(rows):
            used = tuple(chunk for chunk, coefficient in enumerate(row) if coefficient)
            task = Task(job, used, tuple(row[chunk] for chunk in used))
            call = Invocation(round=job, worker=worker, attempt=1, slots=(None, task), load=0.1)
            terms.append((self.answer(call)[1], weights[worker]))
        loss = self.trainer.step(job, terms).loss
        self.trainer.retire(job)
        return loss
