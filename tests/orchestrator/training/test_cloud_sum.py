"""Sums made by workers: the client's own to the last bit, through failures, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import pytest

from gradmux.lambda_worker.buffers import NO_BUFFERS, result_head
from gradmux.lambda_worker.contract import Request, decode_result, encode_request, encode_result
from gradmux.lambda_worker.handler import Worker
from gradmux.orchestrator.fleets.refusals import Verdict
from gradmux.orchestrator.fleets.replies import Answer, ReplyReader, ended
from gradmux.orchestrator.ports import Arrival, Invocation, Outcome
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.cloud_sum import CloudSums, CloudTrainer, Setting, SumFailed, pays, summed_dtype
from gradmux.orchestrator.training.gradients import CodedResult, Term, combine
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.requests import Wire
from gradmux.orchestrator.training.stored import Shelf, StoredResult
from tests.orchestrator.training.bench import Run, StoredObjects, mlp

KEYS = Keys("sums")
WORKERS, JOB = 11, 4

Trouble = Callable[[Invocation], str]
StoredTerm = tuple[StoredResult, float]


@dataclass
class Cloud:
    """The worker's real code over a store in memory; `trouble` says why an invocation fails, or nothing."""

    folder: Path
    dtype: str = "float32"
    trouble: Trouble = lambda call: ""
    store: MemoryStore = field(default_factory=MemoryStore)
    shelf: Shelf = field(default_factory=Shelf)
    run: str = KEYS.run
    calls: list[Invocation] = field(default_factory=list)
    holders: set[int] = field(default_factory=set)
    """workers whose results hold buffers"""

    def __post_init__(self) -> None:
        self._worker = Worker(lambda _: StoredObjects(self.store), self.folder)
        self._reader = ReplyReader(self.run, self.store, self.shelf)

    def sums(self, most: int = 4, attempts: int = 3) -> CloudSums:
        setting = Setting(KEYS, "bucket", 2, self.dtype, most, attempts, slice_bytes=400)
        return CloudSums(setting, self.send, self.store, self.shelf)

    def send(self, calls: Sequence[tuple[Invocation, Request]]) -> list[Arrival]:
        return [self._invoke(call, request) for call, request in calls]

    def _invoke(self, call: Invocation, request: Request) -> Arrival:
        self.calls.append(call)
        if reason := self.trouble(call):
            return ended(call, Outcome.CRASHED, reason)
        body = orjson.dumps(self._worker.answer(orjson.loads(encode_request(request))))
        return self._reader.read(call, Answer(Verdict.ANSWERED, body=body))

    def put(self, size: int, weights: Sequence[float] = (1.0,)) -> tuple[list[Term], list[StoredTerm]]:
        """Results of all workers, as the client would have them, and as they lie in the store."""
        generator = np.random.default_rng(1)
        terms: list[Term] = []
        stored: list[StoredTerm] = []
        for worker in range(WORKERS):
            buffers = generator.normal(size=3) if worker in self.holders else NO_BUFFERS
            raw = encode_result(generator.normal(size=size), generator.normal(size=6), self.dtype, buffers)
            key, weight = f"{KEYS.results}{worker}", weights[worker % len(weights)]
            self.store.put(key, raw)
            self.shelf.note(JOB, key)
            head = result_head(raw)
            terms.append((CodedResult(*decode_result(raw)), weight))
            stored.append(
                (StoredResult(key, len(raw), head.offset, head.scale, np.array(head.sums), head.buffers), weight)
            )
        return terms, stored


def assert_same(one: CodedResult, other: CodedResult) -> None:
    assert one.gradient.dtype == other.gradient.dtype
    np.testing.assert_array_equal(one.gradient, other.gradient)
    np.testing.assert_array_equal(one.sums, other.sums)
    np.testing.assert_array_equal(one.buffers, other.buffers)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0, 1.0), (0.7, -2.0, 1.0)])
@pytest.mark.parametrize("size", [3, 1003])
def test_the_bits_are_the_clients_own(dtype: str, weights: tuple[float, ...], size: int, tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, dtype)
    cloud.holders = {0, 2}
    terms, stored = cloud.put(size, weights)
    assert combine(terms).buffers.size == 3
    assert_same(cloud.sums().total(JOB, stored), combine(terms))
    assert len(cloud.calls) == (4 if size == 1003 else 1)
    assert cloud.store.list("") == [], "results and sums are removed"


def test_slices_are_neither_too_small_nor_too_many(tmp_path: Path) -> None:
    for most, size, slices in ((1, 1000, 1), (8, 1000, 8), (100, 1000, 10), (100, 99, 1)):
        cloud = Cloud(tmp_path)
        _, stored = cloud.put(size)
        cloud.sums(most=most).total(JOB, stored)
        assert len(cloud.calls) == slices


def test_slices_that_fail_are_summed_again(tmp_path: Path) -> None:
    def trouble(call: Invocation) -> str:
        return "Runtime.ExitError: killed" if call.attempt <= call.worker else ""

    cloud = Cloud(tmp_path, trouble=trouble)
    terms, stored = cloud.put(1003)
    assert_same(cloud.sums(attempts=4).total(JOB, stored), combine(terms))
    assert [(call.worker, call.attempt) for call in cloud.calls] == [
        (0, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2), (2, 3), (3, 3), (3, 4),
    ]  # fmt: skip


def test_a_slice_that_always_fails_ends_the_run_resumably(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, trouble=lambda call: "Runtime.ExitError: killed" if call.worker == 2 else "")
    _, stored = cloud.put(1003)
    with pytest.raises(SumFailed, match=r"job 4: a slice .* in 3 attempts: Runtime\.ExitError") as caught:
        cloud.sums().total(JOB, stored)
    assert caught.value.exit_code == 5
    assert len(cloud.calls) == 4 + 1 + 1


class DamagingStore(MemoryStore):
    """Damages what is put under one key, so many times."""

    def __init__(self, key: str, times: int) -> None:
        super().__init__()
        self._key, self.left = key, times

    def put(self, key: str, data: bytes) -> None:
        if key == self._key and self.left:
            self.left -= 1
            data = data[:-1] + bytes([data[-1] ^ 1])
        super().put(key, data)


def test_a_sum_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, store=DamagingStore(KEYS.reduced(2, JOB, 250), times=2))
    terms, stored = cloud.put(1000)
    assert_same(cloud.sums(attempts=3).total(JOB, stored), combine(terms))
    assert [(call.worker, call.attempt) for call in cloud.calls[4:]] == [(1, 2), (1, 3)]
    assert cloud.store.list("") == []


def test_a_sum_that_is_always_damaged_ends_the_run_resumably(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, store=DamagingStore(KEYS.reduced(2, JOB, 250), times=9))
    _, stored = cloud.put(1000)
    with pytest.raises(SumFailed, match=r"in 3 attempts: its sum is damaged: result: CRC32 does not match"):
        cloud.sums().total(JOB, stored)


def test_a_result_that_got_lost_is_told_by_name(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    _, stored = cloud.put(1003)
    cloud.store.delete([stored[3][0].key])
    with pytest.raises(SumFailed, match=f"MissingObject: .*{stored[3][0].key}"):
        cloud.sums().total(JOB, stored)


def test_latecomers_of_finished_jobs_are_removed_with_the_next_one() -> None:
    shelf = Shelf()
    for job, key in ((0, "a"), (1, "b"), (0, "c")):
        shelf.note(job, key)
    assert shelf.finish(0) == ["a", "c"]
    shelf.note(0, "late")
    shelf.note(2, "early")
    assert sorted(shelf.finish(1)) == ["b", "late"]
    shelf.begin()
    shelf.note(0, "again")
    assert shelf.finish(2) == ["early"]
    assert shelf.finish(0) == ["again"]


def test_a_whole_run_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """Real requests, results and sums; the first result of each job is redundant, and removed all the same."""
    plans = [ModelPlan("m", mlp, optimizer="Adam", optimizer_args={"lr": 0.05})]
    client = Run(plans, tmp_path / "client")
    client.play([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1, 1, 1])

    stored = Run(plans, tmp_path / "cloud", wire=Wire(mode="s3"))
    cloud = Cloud(tmp_path / "reducers", store=stored.store, run=stored.keys.run)
    setting = Setting(stored.keys, "bucket", epoch=0, dtype="float32", most=3, attempts=1)
    reader = ReplyReader(stored.keys.run, stored.store, cloud.shelf)
    trainer = CloudTrainer(stored.trainer, CloudSums(setting, cloud.send, stored.store, cloud.shelf))
    for job in range(stored.jobs.jobs):
        trainer.publish(job)
        answers = [answer(stored, reader, job, worker) for worker in (0, 0, 1, 2)]
        trainer.step(job, [(result, 1.0) for result in answers[1:]])
        trainer.retire(job)
        assert stored.store.list(stored.keys.results) == []
    assert stored.trainer.state(0) == client.trainer.state(0)


def answer(run: Run, reader: ReplyReader, job: int, chunk: int) -> StoredResult:
    """What a worker leaves in the store."""
    slots = (None, Task(job, (chunk,), (1.0,)))
    call = Invocation(round=job, worker=chunk, attempt=1, slots=slots, load=0.1)
    body = orjson.dumps(run.worker.answer(orjson.loads(encode_request(run.builder.build(call)))))
    result = reader.read(call, Answer(Verdict.ANSWERED, body=body)).results[1]
    assert isinstance(result, StoredResult)
    return result


def test_when_it_pays() -> None:
    """A reply takes 6,291,556 bytes, and base64 makes 4 of 3."""
    assert not pays(1_179_600, "float32")
    assert pays(1_180_000, "float32")
    assert pays(600_000, "float64")
    assert [summed_dtype(dtype) for dtype in ("float32", "float64", "float16")] == ["float32", "float64", "float32"]
