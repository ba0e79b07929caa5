"""moto's control plane behind a server of its own: an account that is empty at the beginning of each test."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from gradmux.infra.aws.door import BotoDoor
from tests.infra.aws.fakes import RecordingDoor


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """URL of a server that knows all of AWS's services."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def client(moto: str) -> BotoDoor:
    """The real door; its clients are made once, which takes boto3 longer than most tests."""
    services = ("cloudformation", "codebuild", "ecr", "iam", "lambda", "logs", "s3", "sts")
    session = boto3.Session("testing", "testing", region_name="us-east-1")
    return BotoDoor(session, dict.fromkeys(services, moto))


@pytest.fixture
def door(moto: str, client: BotoDoor) -> RecordingDoor:
    """The door to an empty account, with a record of what went through."""
    urllib.request.urlopen(urllib.request.Request(f"{moto}/moto-api/reset", method="POST")).close()
    return RecordingDoor(client)
