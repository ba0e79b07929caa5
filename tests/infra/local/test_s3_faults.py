"""Faults of S3, of credentials, and replies of another life of the run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gradmux.infra.local import Emulator, EmulatorError, FaultKind, FaultPlan, FaultRate
from gradmux.infra.local.corruption import of_another_life
from tests.infra.local.conftest import CONFIG, client_of


@pytest.fixture
def s3(emulator: Emulator) -> Any:
    client = client_of(emulator, "s3")
    client.create_bucket(Bucket="faulty")
    return client


def hurt(emulator: Emulator, kind: FaultKind, rate: float = 1.0) -> int:
    """Sets one fault; how often it has happened until now."""
    emulator.set_faults(FaultPlan((FaultRate(kind, rate),), seed=4))
    return int(emulator.statistics()["faults"].get(kind.value, 0))


def test_s3_says_slow_down_at_the_rate_that_was_asked_for(emulator: Emulator, s3: Any) -> None:
    before = hurt(emulator, FaultKind.SLOW_DOWN, 0.4)
    stored, errors = [], []
    for number in range(60):
        try:
            s3.put_object(Bucket="faulty", Key=f"k{number}", Body=b"x" * 1000)
        except ClientError as error:
            errors.append((error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]))
        else:
            stored.append(f"k{number}")
    assert set(errors) == {("SlowDown", 503)}
    refused = 60 - len(stored)
    assert 12 <= refused <= 36
    assert emulator.statistics()["faults"]["slowdown"] == before + refused
    emulator.set_faults(FaultPlan())
    assert [found["Key"] for found in s3.list_objects_v2(Bucket="faulty")["Contents"]] == sorted(stored)


def test_a_lost_snapshot_is_gone_for_good_and_nothing_else_is(emulator: Emulator, s3: Any) -> None:
    for key in ("runs/r/weights/0/1/2", "runs/r/results/a"):
        s3.put_object(Bucket="faulty", Key=key, Body=b"w")
    before = hurt(emulator, FaultKind.LOST)
    assert s3.get_object(Bucket="faulty", Key="runs/r/results/a")["Body"].read() == b"w"
    for _ in range(2):
        with pytest.raises(ClientError, match="NoSuchKey"):
            s3.get_object(Bucket="faulty", Key="runs/r/weights/0/1/2")
    emulator.set_faults(FaultPlan())
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object(Bucket="faulty", Key="runs/r/weights/0/1/2")
    assert emulator.statistics()["faults"]["lost"] == before + 1


def test_expired_credentials_are_refused_before_anything_runs(emulator: Emulator, lambda_client: Any) -> None:
    hurt(emulator, FaultKind.EXPIRED)
    ran = emulator.statistics()["invocations"]
    event = json.dumps({"op": "gradient", "round": 0, "worker": 0, "attempt": 1, "load": 0.0})
    with pytest.raises(ClientError) as caught:
        lambda_client.invoke(FunctionName=CONFIG.function, Payload=event)
    assert caught.value.response["Error"]["Code"] == "ExpiredTokenException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert emulator.statistics()["invocations"] == ran


def test_a_stale_reply_differs_in_its_epoch_alone() -> None:
    reply = {"protocol": 3, "epoch": 9, "results": [{"epoch": 9, "buffer": "AAAA"}]}
    stale = json.loads(of_another_life(json.dumps(reply).encode()))
    assert stale == {**reply, "epoch": 10}


def test_faults_of_s3_take_no_share_of_the_calls() -> None:
    rates = (FaultRate(FaultKind.CRASH, 1.0), FaultRate(FaultKind.SLOW_DOWN, 1.0))
    plan = FaultPlan(rates)
    assert {plan.decide(0, worker, 1) for worker in range(50)} == {FaultKind.CRASH}
    assert FaultPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(EmulatorError, match="at most 1 together"):
        FaultPlan((*rates, FaultRate(FaultKind.OOM, 0.1)))
