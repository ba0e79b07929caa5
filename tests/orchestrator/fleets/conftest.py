"""Both real fleets, and the scripted endpoint that they ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.boto3_fleet import Boto3Fleet
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from tests.orchestrator.fleets.emulated import RealFleet
from tests.orchestrator.fleets.fake_lambda import FakeLambda


@pytest.fixture(params=[LambdaFleet, Boto3Fleet], ids=["own client", "boto3"])
def kind(request: pytest.FixtureRequest) -> RealFleet:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def endpoint() -> Iterator[FakeLambda]:
    with FakeLambda() as running:
        yield running
