"""One emulator for all tests that only call it, and stock boto3 clients for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.config import Config

from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig, FaultPlan

SAMPLES = "gradmux.infra.local.samples:handler"
CONFIG = EmulatorConfig(
    handler=SAMPLES, preload=(), timeout_s=1.0, memory_mb=160, concurrency=6, variables=(("COLOUR", "blue"),)
)


def client_of(emulator: Emulator, service: str) -> Any:
    """A stock client: only endpoint, region and (dummy) credentials are given."""
    variables = emulator.environment()
    return boto3.client(
        service,
        endpoint_url=emulator.lambda_endpoint if service == "lambda" else emulator.s3_endpoint,
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=64),
    )


@dataclass(frozen=True)
class Outcome:
    """An invocation's answer, read."""

    status: int
    error: str | None
    payload: Any
    log: str
    response: dict[str, Any]


@pytest.fixture(scope="session")
def shared_emulator() -> Iterator[Emulator]:
    with Emulator(CONFIG) as running:
        yield running


@pytest.fixture
def emulator(shared_emulator: Emulator) -> Iterator[Emulator]:
    """The shared emulator; delays and faults that a test sets end with it."""
    yield shared_emulator
    shared_emulator.set_delays(DelayPlan())
    shared_emulator.set_faults(FaultPlan())


@pytest.fixture(scope="session")
def lambda_client(shared_emulator: Emulator) -> Any:
    return client_of(shared_emulator, "lambda")


@pytest.fixture
def invoke(emulator: Emulator, lambda_client: Any) -> Callable[..., Outcome]:
    """Calls the function with an event, through boto3, and reads the whole answer."""

    def call(event: Any = None, **options: Any) -> Outcome:
        payload = event if isinstance(event, bytes) else json.dumps(event or {}).encode()
        arguments = {"FunctionName": CONFIG.function, "LogType": "Tail", "Payload": payload, **options}
        response = lambda_client.invoke(**arguments)
        body = response["Payload"].read()
        log = base64.b64decode(response.get("LogResult", "")).decode()
        return Outcome(
            response["StatusCode"], response.get("FunctionError"), json.loads(body) if body else None, log, response
        )

    return call
