"""The pure parts of an answer: names, reports, damage, JSON."""

from __future__ import annotations

import base64
import json
import random
from typing import NamedTuple

import pytest
from awslambdaric.lambda_runtime_exception import FaultException
from awslambdaric.lambda_runtime_marshaller import LambdaMarshaller

from gradmux.infra.local import answers
from gradmux.infra.local.corruption import corrupted
from gradmux.infra.local.marshal import Marshaller
from gradmux.infra.local.names import FunctionName, function_arn, parse_name
from gradmux.infra.local.report import Report


class Point(NamedTuple):
    """AWS's runtime writes it as an object."""

    x: str
    y: int


ARN = "arn:aws:lambda:us-east-1:123456789012:function:worker"


@pytest.mark.parametrize(
    ("text", "qualifier", "expected"),
    [
        ("worker", None, FunctionName("worker", None)),
        ("worker:live", None, FunctionName("worker", "live")),
        ("worker", "$LATEST", FunctionName("worker", "$LATEST")),
        (ARN, None, FunctionName("worker", None)),
        (f"{ARN}:7", None, FunctionName("worker", "7")),
        (f"{ARN}:live", "live", FunctionName("worker", "live")),
        ("123456789012:function:worker", None, FunctionName("worker", None)),
        ("worker:live", "other", None),
        ("no spaces", None, None),
        ("", None, None),
        ("x" * 65, None, None),
    ],
)
def test_names_as_the_api_takes_them(text: str, qualifier: str | None, expected: FunctionName | None) -> None:
    assert parse_name(text, qualifier) == expected


def test_an_arn_reads_back() -> None:
    assert parse_name(function_arn("eu-west-1", "worker", "live")) == FunctionName("worker", "live")


@pytest.mark.parametrize(
    ("duration_s", "init_s", "billed_ms"), [(0.020, None, 20), (0.0201, None, 21), (0.0, None, 0), (0.0015, 0.25, 252)]
)
def test_the_bill_rounds_up_to_a_millisecond_and_includes_the_start(
    duration_s: float, init_s: float | None, billed_ms: int
) -> None:
    report = Report("id", "$LATEST", duration_s, memory_mb=1769, max_memory_mb=90, init_s=init_s)
    assert report.billed_ms == billed_ms


def test_the_tail_is_the_last_4_kb() -> None:
    report = Report("id", "$LATEST", 0.5, memory_mb=1769, max_memory_mb=90)
    tail = base64.b64decode(report.tail(b"x" * 10_000))
    assert len(tail) == 4096
    assert tail.startswith(b"x")
    assert tail.endswith(report.lines().encode())


def test_damage_stays_json_of_the_same_length_and_sits_in_the_longest_base64() -> None:
    buffer = base64.b64encode(random.Random(1).randbytes(3000)).decode()
    body = json.dumps({"results": [{"slot": 0, "key": None, "buffer": buffer}], "cpu": "x"}).encode()
    damaged = corrupted(body)
    assert len(damaged) == len(body)
    assert sum(a != b for a, b in zip(damaged, body, strict=True)) == 1
    assert base64.b64decode(json.loads(damaged)["results"][0]["buffer"]) != base64.b64decode(buffer)


@pytest.mark.parametrize("body", [b"{}", b"A", b"B" * 40, b""])
def test_damage_changes_every_body_that_has_a_byte(body: bytes) -> None:
    assert (corrupted(body) != body) == bool(body)


@pytest.mark.parametrize(
    "response",
    [
        {"a": 1, "b": [1.5, None, True], "c": {"d": "text"}},
        {"buffer": "QUJD" * 3000, "key": None},
        ['long "quotes" and \\ and \x01 \x7f \n' * 500],
        ["é☃" * 5000],
        float("nan"),
        "x" * 5000,
        (1, 2),
        {1: "number as key"},
        {1: "A" * 5000, "mark": "\0", "b" * 5000: ("C" * 5000, ["D" * 5000], "\0" * 5000)},
        Point("x" * 5000, 2),
        [Point("x" * 5000, 2)],
    ],
)
def test_replies_are_byte_for_byte_what_aws_s_runtime_writes(response: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EXECUTION_ENV", "AWS_Lambda_python3.12")
    theirs, their_type = LambdaMarshaller().marshal_response(response)
    ours, our_type = Marshaller().marshal_response(response)
    assert (ours if isinstance(ours, bytes) else ours.encode(), our_type) == (theirs.encode(), their_type)


@pytest.mark.parametrize("response", [object(), {"x": {1, 2}}])
def test_what_is_no_json_is_aws_s_marshal_error(response: object) -> None:
    with pytest.raises(FaultException, match="Unable to marshal response"):
        Marshaller().marshal_response(response)


def test_an_answer_knows_its_name() -> None:
    assert answers.too_many_requests().name == "TooManyRequestsException"
    assert answers.out_of_memory("id").name == "Runtime.OutOfMemory"
    assert answers.Answer(200, b"{}").name == "ok"
