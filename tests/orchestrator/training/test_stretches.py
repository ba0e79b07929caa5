"""States that travel, and states that stay in the store: what goes through the client, and what is fetched when."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from gradmux.lambda_worker.contract import encode_request, parse_reply
from gradmux.lambda_worker.handler import Worker
from gradmux.lambda_worker.transforms import Preparation
from gradmux.orchestrator.errors import Diverged, GradmuxError
from gradmux.orchestrator.jobs import OpenPlan
from gradmux.orchestrator.ports import Invocation, StepResult
from gradmux.orchestrator.runs.failed import FailedTask
from gradmux.orchestrator.runs.replay_task import replay
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.code import ship_code
from gradmux.orchestrator.training.data import Dataset, load_dataset, put_dataset
from gradmux.orchestrator.training.models import ModelPlan, prepare, why_not_stepped
from gradmux.orchestrator.training.order import BatchOrder
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials
from gradmux.orchestrator.training.stretches import StretchResult, inline_state_bytes
from gradmux.orchestrator.training.taking import Declared, Pad
from gradmux.orchestrator.training.trainer import TorchTrainer
from tests.orchestrator.training.bench import StoredObjects, make_dataset, mlp

ADAM = ModelPlan("m", mlp, optimizer="Adam", optimizer_args={"lr": 0.05}, seed=7)
IN_STORE, INLINE = 0, 10**6


class Counted(MemoryStore):
    """The client's door to the store; workers have their own."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0
        self.read: list[str] = []

    def put(self, key: str, data: bytes | memoryview) -> None:
        self.moved += len(data)
        super().put(key, data)

    def get(self, key: str) -> bytes:
        found = super().get(key)
        self.moved += len(found)
        self.read.append(key)
        return found


class Client:
    """One model, stretched by workers in this process."""

    def __init__(
        self,
        folder: Path,
        state_bytes: int,
        plan: ModelPlan = ADAM,
        steps: int = 12,
        dataset: Dataset | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self.inner, dataset = Counted(), dataset or make_dataset()
        self.plan, keys = OpenPlan([0], [steps]), Keys("run")
        self.trainer = TorchTrainer(
            [plan], self.plan, store=self.inner, keys=keys, stepped=(True,), state_bytes=state_bytes
        )
        materials = RunMaterials(
            keys=keys,
            bucket="bucket",
            data=put_dataset(self.inner, dataset),
            specs=self.trainer.put_specs(),
            orders=[BatchOrder(dataset.rows, 20, seed=1, sampling=dataset.sampling)],
            weights=self.trainer.weights,
            seeds=self.trainer.seeds,
            state=self.trainer.state_of,
            stepped=(True,),
            state_reply_bytes=state_bytes * 4 // 3 + 100 if state_bytes else 0,
        )
        self.builder = RequestBuilder(materials, self.plan, np.ones(1))
        self.workers = [Worker(lambda _: self.beyond, folder / str(number)) for number in range(2)]
        self.beyond = StoredObjects(self.inner)
        self.wire = 0

    def stretch(self, steps: int, copies: int = 1) -> StepResult:
        """One job, whose last copy is the one that counts."""
        job = self.plan.begin(0, steps)
        self.trainer.publish(job)
        results = [self.answer(job, copy) for copy in range(copies)]
        told = self.trainer.step(job, [(results[-1], 1.0)])
        if told.steps is not None:
            self.plan.cut(job, told.steps)
        self.trainer.retire(job)
        return told

    def answer(self, job: int, copy: int) -> StretchResult:
        call = Invocation(job, copy, 1, (Task(job, (0,), (1.0,)),), 1.0)
        before, read = self.inner.moved, len(self.inner.read)
        request = encode_request(self.builder.build(call))
        reply = orjson.dumps(self.workers[copy].answer(orjson.loads(request)))
        self.inner.moved, self.inner.read[read:] = before, []  # that was the worker
        self.wire += len(request) + len(reply)
        (result,) = parse_reply(reply).results
        assert result.status == "ok", result.error
        return StretchResult.of(result)


@pytest.mark.parametrize("state_bytes", [IN_STORE, INLINE])
@pytest.mark.parametrize("copies", [1, 2])
def test_where_states_are_makes_no_difference(tmp_path: Path, state_bytes: int, copies: int) -> None:
    whole, parts = Client(tmp_path / "a", INLINE), Client(tmp_path / "b", state_bytes)
    told = whole.stretch(12)
    pieces = [parts.stretch(steps, copies) for steps in (5, 1, 6)]
    assert whole.trainer.state(0) == parts.trainer.state(0)
    assert [each for one in pieces for each in (*one.earlier, replace(one, earlier=()))] == [
        *told.earlier,
        replace(told, earlier=()),
    ]


def test_bytes_through_the_client_do_not_grow_with_k_but_for_losses(tmp_path: Path) -> None:
    """And a state in the store is fetched when the model is asked for, not before."""
    moved = {}
    for steps in (2, 10):
        client = Client(tmp_path / str(steps), IN_STORE, replace(ADAM, args={"hidden": 4000}))
        client.stretch(2)
        client.wire = client.inner.moved = 0
        client.stretch(steps)
        assert client.inner.read == []
        assert client.inner.moved == 0
        moved[steps] = client.wire
        state = client.trainer.state(0)
        assert [key.rpartition("-")[2] for key in client.inner.read] == [client.inner.read[0].rpartition("-")[2]]
        assert client.inner.moved > len(state.weights) > 100_000
    assert moved[10] - moved[2] < 8 * 150, "bytes of figures for each step more"
    assert moved[10] < 5_000


def test_slower_copies_find_a_marker(tmp_path: Path) -> None:
    alone, two = Client(tmp_path / "a", INLINE), Client(tmp_path / "b", INLINE)
    alone.stretch(2)
    two.stretch(2, copies=2)
    until = time.monotonic() + 20
    while not two.inner.list("runs/run/results/done/") and time.monotonic() < until:
        time.sleep(0.01)
    assert two.inner.list("runs/run/results/done/") == [Keys("run").done(0, 0)]
    assert alone.inner.list("runs/run/results/done/") == []


def test_a_divergence_ends_the_model_at_its_next_job(tmp_path: Path) -> None:
    client = Client(tmp_path, INLINE, replace(ADAM, optimizer="SGD", optimizer_args={"lr": 1e38}))
    told = client.stretch(9)
    made = told.steps
    assert made is not None
    assert 0 < made < 9
    assert client.trainer.state(0).steps == made
    with pytest.raises(Diverged, match=f"step {made}"):
        client.stretch(2)


def test_a_state_that_is_lost_is_told(tmp_path: Path) -> None:
    client = Client(tmp_path, IN_STORE)
    client.stretch(3)
    client.inner.delete(client.inner.list("runs/run/results/"))
    with pytest.raises(GradmuxError, match="its state after 3 steps is lost"):
        client.trainer.state(0)


def test_a_model_whose_steps_workers_cannot_make_says_why() -> None:
    lock = threading.Lock()

    def own(parameters: Any) -> torch.optim.Optimizer:
        assert lock is not None
        return torch.optim.SGD(parameters, lr=0.1)

    assert "cannot be sent to workers" in why_not_stepped(prepare(replace(ADAM, optimizer=own, optimizer_args={})))
    assert why_not_stepped(prepare(ADAM)) == ""


def test_states_leave_room_for_the_rest_of_a_message() -> None:
    assert inline_state_bytes(6_291_456) // 12 == pytest.approx(390_000, rel=0.01), "parameters under Adam"
    assert inline_state_bytes(10) == 0


def test_the_saved_request_of_a_stretch_runs_here(tmp_path: Path) -> None:
    client = Client(tmp_path, IN_STORE)
    job = client.plan.begin(0, 3)
    client.trainer.publish(job)
    request = client.builder.build(Invocation(job, 0, 1, (Task(job, (0,), (1.0,)),), 3.0))
    (stretch,) = request.stretches
    objects = {key: client.inner.get(key) for key in (stretch.model, stretch.state.key or "")}
    (told,) = replay(FailedTask("saved", encode_request(request), objects), make_dataset())
    assert (told.status, told.error) == ("ok", "")
    (told,) = replay(FailedTask("saved", encode_request(request), {}), make_dataset())
    assert told.status == "failed"


# --- data of every kind --------------------------------------------------------------------------------------------


class Bag(nn.Module):
    """Means of the tokens that are real, beside some numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 6), nn.Linear(9, 3)

    def forward(self, tokens: Tensor, real: Tensor, numbers: Tensor) -> Tensor:
        weights = real.to(numbers.dtype)
        mean = (self.table(tokens) * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)
        return self.head(torch.cat([mean, numbers], 1))  # type: ignore[no-any-return]


def shaken(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Another one in every epoch."""
    return {**inputs, "numbers": inputs["numbers"] + 0.1 * torch.randn(3) * float(np.random.rand())}


def ragged(folder: Path, *, sampled: bool) -> Dataset:
    """Lists of different lengths, padded and masked, with weights, a transform and, if asked for, weighted sampling."""
    draws, rows = random.Random(3), 50
    table = pa.table(
        {
            "tokens": [[draws.randrange(20) for _ in range(draws.randint(1, 7))] for _ in range(rows)],
            "a": [draws.random() for _ in range(rows)],
            "b": [draws.random() for _ in range(rows)],
            "c": [draws.random() for _ in range(rows)],
            "label": [draws.randrange(3) for _ in range(rows)],
            "importance": [draws.choice([0.0, 0.5, 1.0, 3.0]) for _ in range(rows)],
            "often": [draws.choice([0.0, 1.0, 4.0]) for _ in range(rows)],
        }
    )
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "rows.parquet")
    declared = Declared(
        inputs={"tokens": "tokens", "numbers": ["a", "b", "c"]},
        targets="label",
        weights="importance",
        sampling="often" if sampled else None,
        pad={"tokens": Pad(7, 0, "real")},
    )
    found = load_dataset(str(folder / "rows.parquet"), declared=declared)
    code = ship_code(shaken, "transform")
    return found.prepared(Preparation(mean=(0.5,), std=(2.0,), code=code, seed=9), shaken)


@pytest.mark.parametrize("sampled", [False, True])
def test_stretches_read_rows_as_single_steps_do(tmp_path: Path, sampled: bool) -> None:
    """50 rows in batches of 20: six epochs, each with its own transforms. Also as plain torch trains them."""
    dataset = ragged(tmp_path / "data", sampled=sampled)
    plan = replace(ADAM, factory=Bag)
    whole, single, plain = (Client(tmp_path / name, INLINE, plan, dataset=dataset) for name in "abc")
    told = whole.stretch(12)
    ones = [single.stretch(1) for _ in range(12)]
    assert whole.trainer.state(0) == single.trainer.state(0)
    assert [each.loss for each in (*told.earlier, told)] == [each.loss for each in ones]
    order = BatchOrder(dataset.rows, 20, seed=1, sampling=dataset.sampling)
    trained = plain.trainer.module(0)
    optimizer = torch.optim.Adam(trained.parameters(), **ADAM.optimizer_args)
    for step in range(12):
        batch = dataset.batch(np.sort(order.batch(step)), epoch=order.epoch(step))
        losses = nn.functional.cross_entropy(trained(**batch.inputs), batch.target.target, reduction="none")
        loss = (losses * batch.target.weights).sum() / batch.target.weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for ours, theirs in zip(whole.trainer.module(0).parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
