"""Whole requests against the worker, JSON in and JSON out, with a bucket in memory."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import orjson
import pytest
import torch
from msgspec.structs import replace
from torch.nn import functional as F

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.contract import (
    ContractError,
    Order,
    ReplyMode,
    Result,
    Skip,
    SumIndex,
    Task,
    Weights,
    cancel_marker,
    decode_result,
    early_key,
    encode_request,
    parse_reply,
    reply_key,
    request_json,
    result_key,
)
from gradmux.lambda_worker.handler import Worker
from gradmux.lambda_worker.models import build
from gradmux.lambda_worker.objects import MemoryObjects, StoreError
from tests.lambda_worker.workbench import ORDER, ROWS, Workbench, initial, spans, spec

LARGER = Order(ROWS + 1, ROWS + 1, shuffle=False)
"""as if there were one more row"""


def task(bench: Workbench, slot: int = 0, factory: str = "mlp", terms: Any = None, **fields: Any) -> Task:
    loss = fields.pop("loss", "cross_entropy")
    plain = Task(
        slot,
        job=4,
        model=bench.put_model(factory, loss=loss),
        weights=bench.put_weights(initial(factory))
        if factory not in {"broken", "not_a_module"}
        else Weights(key="none"),
        order=fields.pop("order", ORDER),
        step=0,
        passes=fields.pop("passes", ROWS),
        terms=spans(0, ROWS) if terms is None else terms,
    )
    return replace(plain, **fields)


def decoded(result: Result) -> tuple[np.ndarray, np.ndarray]:
    assert result.status == "ok", result.error
    assert result.buffer is not None
    return decode_result(result.buffer)[:2]


def reference(bench: Workbench) -> torch.Tensor:
    module = build(spec()).module
    flat.load_snapshot(module, initial())
    F.cross_entropy(module(torch.from_numpy(bench.x)), torch.from_numpy(bench.y), reduction="sum").backward()
    return flat.flatten(parameter.grad for parameter in module.parameters() if parameter.grad is not None)


def test_a_gradient_and_its_sums(bench: Workbench) -> None:
    reply = bench.ask(bench.request(task(bench, terms=spans(0, 11, ROWS))))
    assert (reply.run, reply.epoch, reply.round, reply.worker, reply.attempt) == ("run", 3, 5, 2, 1)
    (result,) = reply.results
    gradient, sums = decoded(result)
    assert np.allclose(gradient, reference(bench).numpy(), rtol=1e-5, atol=1e-6)
    assert sums[SumIndex.SAMPLES] == ROWS
    assert (result.slot, result.job, result.message) == (0, 4, 0)


def test_weights_in_the_request(bench: Workbench) -> None:
    by_key = task(bench)
    inline = replace(by_key, slot=1, weights=Weights.of(flat.to_bytes(initial())))
    one, other = bench.ask(bench.request(by_key, inline)).results
    assert np.array_equal(decoded(one)[0], decoded(other)[0])


def test_two_sandboxes_agree_bit_for_bit(bench: Workbench) -> None:
    wanted = bench.request(task(bench, factory="with_dropout", terms=spans(0, 11, ROWS), seed=8))
    one, other = bench.ask(wanted), bench.ask(wanted, bench.new_worker())
    assert one.results == other.results


def test_everything_is_read_once_per_sandbox(bench: Workbench) -> None:
    wanted = bench.request(task(bench))
    bench.objects.reads.clear()
    first = bench.ask(wanted)
    keys = [key for key, _, _ in bench.objects.reads]
    assert len(keys) == len(set(keys)) == 6  # model, weights, manifest, three shards
    second = bench.ask(replace(wanted, round=6))
    assert len(bench.objects.reads) == 6
    assert (first.timing.cold, second.timing.cold) == (True, False)
    assert first.timing.compute_s > 0
    assert first.cpu


def test_a_users_exception_fails_its_slot_only_with_the_users_frames(bench: Workbench) -> None:
    bad, good = bench.ask(bench.request(task(bench, 0, "broken"), task(bench, 1))).results
    assert good.status == "ok"
    assert bad.status == "failed"
    assert (bad.error or "").startswith("RuntimeError: the factory is broken\n")
    assert "factories.py" in (bad.error or "")
    assert "lambda_worker/models.py" not in (bad.error or "").replace("tests/lambda_worker", "")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"model": "no/such"}, "MissingObject"),
        ({"weights": Weights(key="no/such")}, "MissingObject"),
        ({"weights": Weights.of(b"1234")}, "ValueError: the flat vector has 1 elements"),
        (
            {"order": Order(ROWS + 1, ROWS + 1, shuffle=False), "passes": ROWS + 1, "terms": spans(0, ROWS + 1)},
            "DataError",
        ),
        ({"factory": "not_a_module"}, "ModelError"),
        ({"loss": "averaged"}, "LossError"),
    ],
)
def test_what_a_task_gets_wrong_is_named(bench: Workbench, changes: dict[str, Any], name: str) -> None:
    (result,) = bench.ask(bench.request(task(bench, **changes))).results
    assert (result.error or "").startswith(name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_nan_is_a_failed_result_that_names_job_and_slot(bench: Workbench, dtype: str) -> None:
    mode = ReplyMode(prefix="p/", dtype=dtype)
    bad, good = bench.ask(
        bench.request(task(bench, 6, loss="not_a_number", terms=spans(0, 1)), task(bench, 7), reply=mode)
    ).results
    assert good.status == "ok"
    assert (bad.error or "").startswith("NonFiniteResult: job 4, slot 6: ")


def test_nan_weights_too(bench: Workbench) -> None:
    poisoned = initial()
    poisoned[3] = float("nan")
    (result,) = bench.ask(bench.request(task(bench, weights=bench.put_weights(poisoned)))).results
    assert (result.error or "").startswith("NonFiniteResult: job 4, slot 0")


def test_float16_and_float64_on_the_wire(bench: Workbench) -> None:
    exact = reference(bench).numpy()
    for dtype, tolerance in (("float16", 1e-3), ("float64", 1e-5)):
        (result,) = bench.ask(bench.request(task(bench), reply=ReplyMode(prefix="p/", dtype=dtype))).results
        gradient, _ = decoded(result)
        assert np.abs(gradient - exact).max() <= tolerance * np.abs(exact).max()


def test_a_spilled_result_is_in_the_bucket(bench: Workbench) -> None:
    wanted = bench.request(task(bench), reply=ReplyMode("s3", prefix="p/"))
    (result,) = bench.ask(wanted).results
    assert result.key == result_key(wanted, 0)
    gradient, sums, _ = decode_result(bench.objects.get(result.key))
    assert np.allclose(gradient, reference(bench).numpy(), rtol=1e-5, atol=1e-6)
    assert result.sums == tuple(sums)


@pytest.mark.parametrize(("marker", "stops"), [(2, False), (3, True), (4, True), (None, False)])
def test_the_cancel_marker_stops_its_epoch_and_earlier_ones(bench: Workbench, marker: int | None, stops: bool) -> None:
    if marker is not None:
        bench.objects.put("cancel", cancel_marker(marker))
    wanted = bench.request(task(bench, 0), task(bench, 1), cancel="cancel")
    bench.objects.reads.clear()
    statuses = [result.status for result in bench.ask(wanted).results]
    assert statuses == (["cancelled"] * 2 if stops else ["ok"] * 2)
    assert (len(bench.objects.reads) == 1) is stops


def test_a_warm_sandbox_does_not_read_the_cancel_marker_for_every_invocation(bench: Workbench) -> None:
    bench.objects.put("cancel", cancel_marker(2))
    for _ in range(5):
        bench.ask(bench.request(task(bench), cancel="cancel"))
    assert [key for key, _, _ in bench.objects.reads].count("cancel") == 1


def test_the_cancel_marker_of_another_run_is_read_at_once(bench: Workbench) -> None:
    bench.objects.put("other", cancel_marker(3))
    bench.ask(bench.request(task(bench), cancel="cancel"))
    (result,) = bench.ask(bench.request(task(bench), cancel="other")).results
    assert result.status == "cancelled"


# --- LAG-WK ------------------------------------------------------------------------------------------------------


def test_a_gradient_that_hardly_moved_is_skipped(bench: Workbench) -> None:
    moved = initial()
    moved[0] += 0.01
    reference_weights = bench.put_weights(initial())

    def ask(threshold: float) -> Result:
        lazy = task(bench, weights=bench.put_weights(moved), skip=Skip(reference_weights, threshold))
        return bench.ask(bench.request(lazy)).results[0]

    here = decoded(bench.ask(bench.request(task(bench, weights=bench.put_weights(moved)))).results[0])
    there = decoded(bench.ask(bench.request(task(bench))).results[0])
    distance = float(np.square(here[0].astype("f8") - there[0].astype("f8")).sum())
    uploaded = ask(0.0)
    assert uploaded.status == "ok"
    assert uploaded.distance == pytest.approx(distance, rel=1e-9)
    assert np.array_equal(decoded(uploaded)[0], here[0])
    skipped = ask(uploaded.distance or 0.0)  # at the threshold: not larger, so skipped
    assert (skipped.status, skipped.distance, skipped.buffer) == ("skipped", uploaded.distance, None)
    assert skipped.sums == tuple(here[1])
    assert ask((uploaded.distance or 0.0) * (1 - 1e-12)).status == "ok"


def test_the_same_weights_and_the_same_dropout_have_distance_zero(bench: Workbench) -> None:
    weights = bench.put_weights(initial("with_dropout"))
    lazy = task(bench, factory="with_dropout", weights=weights, skip=Skip(weights, 0.0))
    (result,) = bench.ask(bench.request(lazy)).results
    assert (result.status, result.distance) == ("skipped", 0.0)


def test_a_non_finite_distance_fails(bench: Workbench) -> None:
    poisoned = bench.put_weights(torch.full_like(initial(), float("nan")))
    (result,) = bench.ask(bench.request(task(bench, skip=Skip(poisoned, 1.0)))).results
    assert (result.error or "").startswith("NonFiniteResult: job 4, slot 0: squared distance")


# --- messages, warming, posting ----------------------------------------------------------------------------------


def test_early_messages_come_through_the_bucket_and_are_not_repeated(bench: Workbench) -> None:
    tasks = [task(bench, 0, message=1), task(bench, 1, message=0), task(bench, 2, "broken", message=0)]
    together = bench.ask(bench.request(*tasks))
    assert [result.slot for result in together.results] == [1, 2, 0]
    wanted = bench.request(*tasks, reply=ReplyMode(prefix="p/", early=True))
    reply = bench.ask(wanted)
    early = parse_reply(bench.objects.objects[early_key(wanted, 0)])
    assert [result.slot for result in reply.results] == [0]
    assert early.results == together.results[:2]
    assert (early.run, early.round, early.worker, early.attempt) == ("run", 5, 2, 1)
    assert early_key(wanted, 1) not in bench.objects.objects


def test_early_messages_in_mode_s3_are_spilled_one_by_one(bench: Workbench) -> None:
    tasks = [task(bench, 0), task(bench, 1, message=1)]
    wanted = bench.request(*tasks, reply=ReplyMode("s3", prefix="p/", early=True))
    bench.ask(wanted)
    (early,) = parse_reply(bench.objects.objects[early_key(wanted, 0)]).results
    assert early.key == result_key(wanted, 0)


class NoEarlyPuts(MemoryObjects):
    """Refuses early replies."""

    def put(self, key: str, body: bytes) -> None:
        if "early" in key:
            raise StoreError(f"{key}: slow down")
        super().put(key, body)


def test_an_early_message_that_cannot_be_put_comes_in_the_reply(bench: Workbench) -> None:
    refusing = NoEarlyPuts()
    refusing.objects = bench.objects.objects
    bench.objects = refusing
    wanted = bench.request(task(bench, 0), task(bench, 1, message=1), reply=ReplyMode(prefix="p/", early=True))
    assert [result.slot for result in bench.ask(wanted, bench.new_worker()).results] == [0, 1]


def test_a_posted_reply_is_the_reply(bench: Workbench) -> None:
    wanted = bench.request(task(bench), reply=ReplyMode(prefix="p/", post=True))
    reply = bench.ask(wanted)
    assert parse_reply(bench.objects.objects[reply_key(wanted)]) == reply


def test_warming_reads_everything_and_says_only_what_failed(bench: Workbench) -> None:
    wanted = bench.request(task(bench, terms=spans(0, 4)), op="warm")
    reply = bench.ask(wanted)
    assert (reply.op, reply.results, reply.timing.cold) == ("warm", (), True)
    bench.objects.reads.clear()
    after = bench.ask(replace(wanted, op="gradient"))
    assert after.results[0].status == "ok"
    assert not after.timing.cold
    assert not bench.objects.reads
    (failure,) = bench.ask(bench.request(task(bench, 3, "broken"), task(bench, 1), op="warm")).results
    assert (failure.slot, failure.status) == (3, "failed")


def test_an_invocation_without_tasks_answers(bench: Workbench) -> None:
    assert bench.ask(bench.request()).results == ()


def test_another_bucket_is_another_world(bench: Workbench) -> None:
    buckets = {"bucket": bench.objects, "empty": MemoryObjects()}
    worker = Worker(buckets.__getitem__, bench.directory / "shared-disk")
    wanted = bench.request(task(bench))
    assert bench.ask(wanted, worker).results[0].status == "ok"
    assert (bench.ask(replace(wanted, bucket="empty"), worker).results[0].error or "").startswith("MissingObject")
    assert bench.ask(wanted, worker).results[0].status == "ok"


def test_malformed_requests_raise_and_the_worker_lives_on(bench: Workbench) -> None:
    good = orjson.loads(encode_request(bench.request(task(bench))))
    for damage in ({"protocol": 1}, {"op": "x"}, {"tasks": [{}]}, {"surprise": 1}):
        with pytest.raises(ContractError):
            bench.worker.answer(copy.deepcopy(good) | damage)
    assert parse_reply(bench.worker.answer(good)).results[0].status == "ok"


def test_the_reply_is_plain_json(bench: Workbench) -> None:
    document = bench.worker.answer(request_json(bench.request(task(bench), task(bench, 1, "broken"))))
    assert orjson.loads(orjson.dumps(document)) == json.loads(json.dumps(document))
    assert parse_reply(document) == parse_reply(json.dumps(document))
