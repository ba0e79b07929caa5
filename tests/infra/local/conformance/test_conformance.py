"""Forked workers and AWS's own runtime in a process of its own give the same answers to the same calls."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec import structs

from gradmux.infra.local import Emulator, EmulatorConfig
from gradmux.infra.local.answers import RESPONSE_BYTES
from gradmux.lambda_worker.contract import (
    Reply,
    ReplyMode,
    Request,
    Task,
    Weights,
    encode_request,
    parse_reply,
    request_json,
)
from gradmux.lambda_worker.models import build
from tests.conftest import PROJECT
from tests.infra.local.conformance.worker import ConformanceWorker
from tests.infra.local.conftest import CONFIG, Outcome, client_of
from tests.lambda_worker.workbench import ORDER, ROWS, Workbench, spans, spec

Invoke = Callable[..., Outcome]
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
DIFFERS = ("AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_ENDPOINT_URL", "LAMBDA_TASK_TMP")
"""Variables that name a port, a stream or a folder; LAMBDA_TASK_TMP is the emulator's own."""


@pytest.fixture(scope="module")
def runtime(shared_emulator: Emulator) -> Iterator[ConformanceWorker]:
    """AWS's runtime over the handler of the shared emulator, with its key."""
    with ConformanceWorker(CONFIG, secret=shared_emulator.secret) as worker:
        yield worker


def comparable(body: Any) -> Any:
    """JSON without what differs from call to call."""
    return json.loads(UUID.sub("ID", json.dumps(body)))


@pytest.mark.parametrize(
    "event",
    [
        {"text": "é☃\n", "number": 1.5, "nothing": None, "list": [1, {"a": "b"}]},
        {"do": "fail", "message": "é, on purpose"},
        {"do": "nothing that there is"},
        {"do": "reply_nonsense"},
        {"do": "write", "text": "a line"},
        {"do": "die", "status": 0},
        {"do": "die", "status": 3},
        {"do": "die", "signal": 11},
        {"do": "sleep", "seconds": 1.3},
        [],
        "text",
    ],
    ids=lambda event: json.dumps(event)[:40],
)
def test_the_same_answer_to_the_same_event(invoke: Invoke, runtime: ConformanceWorker, event: Any) -> None:
    forked, real = invoke(json.dumps(event).encode()), runtime.invoke(json.dumps(event).encode())
    assert (real.status, real.function_error) == (forked.status, forked.error)
    assert comparable(json.loads(real.body)) == comparable(forked.payload)


def test_no_payload_is_an_empty_event_and_what_is_no_json_is_refused(runtime: ConformanceWorker) -> None:
    assert runtime.invoke(b"").body == b"{}"
    assert runtime.invoke(b"nonsense").error_name == "InvalidRequestContentException"


@pytest.mark.parametrize("size", [RESPONSE_BYTES - 1, RESPONSE_BYTES, RESPONSE_BYTES + 1])
def test_the_same_limit_of_a_response(invoke: Invoke, runtime: ConformanceWorker, size: int) -> None:
    event = {"do": "reply_of_size", "bytes": size}
    forked, real = invoke(event), runtime.invoke(json.dumps(event).encode())
    assert real.function_error == forked.error == ("Unhandled" if size > RESPONSE_BYTES else None)
    if real.function_error:
        assert json.loads(real.body) == forked.payload
    else:
        assert len(real.body) == size
        assert len(forked.payload) == size - 2


def test_the_same_context_and_environment(invoke: Invoke, runtime: ConformanceWorker) -> None:
    context = json.dumps({"custom": {"who": "us"}})
    forked = invoke({"do": "describe"}, ClientContext=base64.b64encode(context.encode()).decode()).payload
    real = json.loads(runtime.invoke(b'{"do": "describe"}', context).body)
    for seen in (forked, real):
        assert UUID.fullmatch(seen.pop("request_id"))
        assert seen.pop("pid") > 0
        assert seen.pop("log_stream")
        assert 0 < seen.pop("remaining_ms") <= 1000 * CONFIG.timeout_s
        seen["environment"] = {
            name: value for name, value in seen["environment"].items() if not name.startswith(DIFFERS)
        }
    assert real == forked


def test_tmp_survives_calls_and_is_gone_with_the_sandbox(runtime: ConformanceWorker) -> None:
    runtime.invoke(b'{"do": "die"}')
    counts = [json.loads(runtime.invoke(b'{"do": "count_in_tmp"}').body)["calls"] for _ in range(2)]
    runtime.invoke(b'{"do": "die"}')
    counts.append(json.loads(runtime.invoke(b'{"do": "count_in_tmp"}').body)["calls"])
    assert counts == [1, 2, 1]


def test_a_handler_that_cannot_be_loaded_tells_why_with_every_call() -> None:
    config = replace(CONFIG, handler="gradmux.infra.local.there_is_none:handler")
    with ConformanceWorker(config) as worker:
        for _ in range(2):
            answer = worker.invoke(b"{}")
            assert answer.function_error == "Unhandled"
            assert answer.name == "Runtime.ImportModuleError"
            assert b"No module named 'gradmux.infra.local.there_is_none'" in answer.body
        assert worker.starts == 2


# --- the real worker ---------------------------------------------------------------------------------------------

GRADIENTS = EmulatorConfig(warm=1, python_path=(str(PROJECT),))


class Both:
    """A forked worker and AWS's runtime over one bucket."""

    def __init__(self, emulator: Emulator, runtime: ConformanceWorker, bench: Workbench) -> None:
        self.bench = bench
        self._runtime = runtime
        self._client, self._s3 = client_of(emulator, "lambda"), client_of(emulator, "s3")
        self._s3.create_bucket(Bucket="bucket")

    def ask(self, payload: bytes) -> tuple[bytes, bytes]:
        """What the forked worker answers, and what the real one does."""
        for key, body in self.bench.objects.objects.items():
            self._s3.put_object(Bucket="bucket", Key=key, Body=body)
        forked = self._client.invoke(FunctionName=GRADIENTS.function, Payload=payload)["Payload"].read()
        return forked, bytes(self._runtime.invoke(payload).body)

    def replies(self, request: Request) -> tuple[Reply, Reply]:
        forked, real = self.ask(encode_request(request))
        return parse_reply(forked), parse_reply(real)

    def task(self, factory: str, slot: int = 0) -> Task:
        """A combination of two chunks, from the model's own first weights."""
        weights = torch.cat([tensor.detach().reshape(-1) for tensor in build(spec(factory)).module.parameters()])
        terms = spans(0, 10) + spans(11, 20, coefficients=[-2.0])
        model, reference = self.bench.put_model(factory), self.bench.put_weights(weights)
        return Task(slot, 4, model, reference, structs.replace(ORDER, shuffle=True), 0, ROWS, terms, seed=9)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with Emulator(GRADIENTS) as emulator:
        s3_port = int(emulator.s3_endpoint.rpartition(":")[2])
        with ConformanceWorker(GRADIENTS, s3_port=s3_port, secret=emulator.secret) as runtime:
            yield Both(emulator, runtime, Workbench(tmp_path_factory.mktemp("bench")))


def test_the_same_gradients_to_the_last_bit(both: Both) -> None:
    forked, real = both.replies(both.bench.request(both.task("mlp"), both.task("with_dropout", 1)))
    assert [result.status for result in real.results] == ["ok", "ok"]
    assert structs.replace(real, timing=forked.timing) == forked


def test_the_same_results_through_s3(both: Both) -> None:
    mode = ReplyMode(mode="s3", prefix="runs/run/results/")
    forked, real = both.replies(both.bench.request(both.task("mlp"), reply=mode))
    assert real.results == forked.results
    assert real.results[0].key is not None


def test_the_same_failed_task(both: Both) -> None:
    lost = structs.replace(both.task("mlp"), weights=Weights(key="blobs/" + "0" * 64))
    forked, real = both.replies(both.bench.request(lost))
    assert real.results == forked.results
    assert real.results[0].status == "failed"
    assert "blobs/000" in (real.results[0].error or "")


def test_the_same_refusal_of_another_contract_version(both: Both) -> None:
    event = {**request_json(both.bench.request(both.task("mlp"))), "protocol": 99}
    forked, real = (json.loads(body) for body in both.ask(json.dumps(event).encode()))
    assert comparable(real) == comparable(forked)
    assert real["errorType"] == "VersionError"
    assert "contract version 3" in real["errorMessage"]
    assert "version 99" in real["errorMessage"]
