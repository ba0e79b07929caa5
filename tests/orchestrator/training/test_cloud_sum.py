"""Sums made by workers: the client's own to the last bit, through failures, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from gradmux.infra.local.corruption import corrupted
from gradmux.lambda_worker.buffers import NO_BUFFERS, result_head
from gradmux.lambda_worker.contract import Request, decode_result, encode_request, encode_result
from gradmux.lambda_worker.handler import Worker
from gradmux.orchestrator.errors import PreflightError
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
    with pytest.raises(SumFailed, match=r"job 4: its gradient .* in 3 attempts: Runtime\.ExitError") as caught:
        cloud.sums().total(JOB, stored)
    assert caught.value.exit_code == 5
    assert len(cloud.calls) == 4 + 1 + 1


class DamagingStore(MemoryStore):
    """Damages what is put under keys that begin so, so many times."""

    def __init__(self, prefix: str, times: int) -> None:
        super().__init__()
        self._prefix, self.left = prefix, times

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(self._prefix) and self.left:
            self.left -= 1
            data = data[:-1] + bytes([data[-1] ^ 1])
        super().put(key, data)


def test_a_sum_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, store=DamagingStore(KEYS.reduced(2, JOB, 250, 1)[:-1], times=2))
    terms, stored = cloud.put(1000)
    assert_same(cloud.sums(attempts=3).total(JOB, stored), combine(terms))
    assert [(call.worker, call.attempt) for call in cloud.calls[4:]] == [(1, 2), (1, 3)]
    assert cloud.store.list("") == []


def test_a_sum_that_is_always_damaged_ends_the_run_resumably(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, store=DamagingStore(KEYS.reduced(2, JOB, 250, 1)[:-1], times=9))
    _, stored = cloud.put(1000)
    with pytest.raises(SumFailed, match=r"in 3 attempts: its sum is damaged: result: CRC32 does not match"):
        cloud.sums().total(JOB, stored)


def test_a_result_that_got_lost_is_told_by_name(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    _, stored = cloud.put(1003)
    cloud.store.delete([stored[3][0].key])
    with pytest.raises(SumFailed, match=f"job 4: {stored[3][0].key} is lost or damaged in the store$"):
        cloud.sums().total(JOB, stored)


def test_replies_about_sums_may_come_damaged_more_often_than_slices_may_fail(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, trouble=lambda call: "reply: damaged" if call.attempt < 9 else "")
    terms, stored = cloud.put(1003)
    assert_same(cloud.sums(attempts=1).total(JOB, stored), combine(terms))
    cloud = Cloud(tmp_path, trouble=lambda call: "reply: damaged\n  File x, line 1")
    _, stored = cloud.put(1003)
    with pytest.raises(SumFailed, match=r"in 12 attempts: reply: damaged$") as caught:
        cloud.sums(attempts=1).total(JOB, stored)
    assert "\n" not in str(caught.value)


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


Damage = Callable[[bytearray], bytes | bytearray | None]


class Remembering(nn.Module):
    """A forward that changes a buffer, so that one result of a job has a section for it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            cast(torch.Tensor, self.mean).mul_(0.9).add_(0.1 * x.mean().detach())
        return self.net(x)  # type: ignore[no-any-return]


PARAMETERS = sum(each.numel() for each in Remembering().parameters())


def flipped(index: int) -> Damage:
    """One bit of this byte is another one."""

    def damage(body: bytearray) -> bytearray:
        body[index] ^= 1
        return body

    return damage


DAMAGES: dict[str, Damage] = {
    "gone": lambda body: None,
    "empty": lambda body: b"",
    "short": lambda body: body[:-1],
    "a bit of its gradient": flipped(-1),
    "a bit of its buffers": flipped(-4 * PARAMETERS - 3),
    "not a number": lambda body: body[:-4] + np.float32(np.nan).tobytes(),
    "another's": lambda body: encode_result(np.ones(PARAMETERS), np.ones(5), "float32"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("fails", [0, 1])
def test_the_call_of_a_damaged_result_is_repeated(damage: Damage, fails: int, tmp_path: Path) -> None:
    """The job's other results stay, the weights are those of an undisturbed run, and nothing is left behind."""
    plans = [ModelPlan("m", Remembering, pass_rows=5, buffers=("mean",), optimizer="Adam", optimizer_args={"lr": 0.05})]
    client = Run(plans, tmp_path / "client")
    client.play([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1, 1, 1])

    run = Run(plans, tmp_path / "cloud", wire=Wire(mode="s3"))
    cloud = Cloud(tmp_path / "reducers", store=run.store, run=run.keys.run)
    reader, repeated = ReplyReader(run.keys.run, run.store, cloud.shelf), list[Invocation]()

    def again(calls: Sequence[Invocation]) -> list[Arrival]:
        repeated.extend(calls)
        if len(repeated) <= fails:
            return [ended(call, Outcome.CRASHED, "Runtime.ExitError: killed\n  File x") for call in calls]
        return [answered(run, reader, call) for call in calls]

    setting = Setting(run.keys, "bucket", epoch=0, dtype="float32", most=3, attempts=2, slice_bytes=64)
    sums = CloudSums(setting, cloud.send, run.store, cloud.shelf, again)
    trainer = CloudTrainer(run.trainer, sums)
    for job in range(run.jobs.jobs):
        trainer.publish(job)
        results = [answer(run, reader, job, worker) for worker in (0, 1, 2)]
        if job == 1:
            body = damage(bytearray(run.store.get(results[0].key)))
            if body is None:
                run.store.delete([results[0].key])
            else:
                run.store.put(results[0].key, bytes(body))
        trainer.step(job, [(result, 1.0) for result in results])
        trainer.retire(job)
        assert run.store.list(run.keys.results) == []
    assert [(call.round, call.worker) for call in repeated] == [(1, 0)] * (1 + fails)
    assert run.trainer.state(0) == client.trainer.state(0)


def answer(run: Run, reader: ReplyReader, job: int, chunk: int) -> StoredResult:
    """What a worker leaves in the store."""
    slots = (None, Task(job, (chunk,), (1.0,)))
    result = answered(run, reader, Invocation(round=job, worker=chunk, attempt=1, slots=slots, load=0.1)).results[1]
    assert isinstance(result, StoredResult)
    return result


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_reply_about_a_stored_result_is_no_answer(data: st.DataObject, stored_reply: StoredReply) -> None:
    """Whatever one character becomes: the call has failed, or what is known of the result is what was sent."""
    at = data.draw(st.integers(0, len(stored_reply.body) - 1))
    body = bytearray(stored_reply.body)
    body[at] = data.draw(st.sampled_from(b'0123456789abcdefAZ/-.,:"{}[] e'))
    try:
        arrival = stored_reply.reader.read(stored_reply.call, Answer(Verdict.ANSWERED, body=bytes(body)))
    except PreflightError:  # the contract's version is another one
        return
    good = stored_reply.reader.read(stored_reply.call, Answer(Verdict.ANSWERED, body=stored_reply.body))
    if arrival.outcome is Outcome.OK:
        assert repr(arrival) == repr(good)
    else:
        assert arrival.error.startswith("reply: ")
        assert not arrival.slots


def test_the_emulators_corruption_is_found(stored_reply: StoredReply) -> None:
    body = corrupted(stored_reply.body)
    assert body != stored_reply.body
    arrival = stored_reply.reader.read(stored_reply.call, Answer(Verdict.ANSWERED, body=body))
    assert arrival.error.startswith("reply: ")


@pytest.mark.parametrize(
    "lie",
    [
        {"key": "runs/test-run/results/00/0-0-1-1/1"},
        {"key": "runs/test-run/weights/0/0/0"},
        {"slot": 0},
        {"slot": 7},
        {"job": 1},
        {"offset": 41},
    ],
)
def test_a_reply_that_is_whole_but_answers_something_else_is_no_answer(lie: dict[str, Any], tmp_path: Path) -> None:
    reply = a_stored_reply(tmp_path)
    document = orjson.loads(reply.body)
    del document["check"]
    document["results"][0] |= lie
    arrival = reply.reader.read(reply.call, Answer(Verdict.ANSWERED, body=orjson.dumps(document)))
    assert arrival.outcome is Outcome.FAILED
    assert arrival.error.startswith("reply: slot ")


@dataclass
class StoredReply:
    """What a worker says of a result that lies in the store."""

    body: bytes
    call: Invocation
    reader: ReplyReader


def a_stored_reply(folder: Path) -> StoredReply:
    run = Run([ModelPlan("m", mlp, optimizer="SGD", optimizer_args={"lr": 0.05})], folder, wire=Wire(mode="s3"))
    run.trainer.publish(0)
    call = Invocation(round=0, worker=2, attempt=1, slots=(None, Task(0, (2,), (1.0,))), load=0.1)
    body = orjson.dumps(run.worker.answer(orjson.loads(encode_request(run.builder.build(call)))))
    return StoredReply(body, call, ReplyReader(run.keys.run, run.store, Shelf()))


@pytest.fixture(scope="module")
def stored_reply(tmp_path_factory: pytest.TempPathFactory) -> StoredReply:
    return a_stored_reply(tmp_path_factory.mktemp("reply"))


def answered(run: Run, reader: ReplyReader, call: Invocation) -> Arrival:
    body = orjson.dumps(run.worker.answer(orjson.loads(encode_request(run.builder.build(call)))))
    return reader.read(call, Answer(Verdict.ANSWERED, body=body))


def test_when_it_pays() -> None:
    """A reply takes 6,291,556 bytes, and base64 makes 4 of 3."""
    assert not pays(1_179_600, "float32")
    assert pays(1_180_000, "float32")
    assert pays(600_000, "float64")
    assert [summed_dtype(dtype) for dtype in ("float32", "float64", "float16")] == ["float32", "float64", "float32"]
