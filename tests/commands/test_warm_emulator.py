"""An emulator that begins as a fork is to its workers, and to those who end it, what a real one is."""

from __future__ import annotations

import json
import os
from typing import Any

import boto3
import psutil

from gradmux.infra.closed_session import closed_session
from gradmux.infra.local import Emulator, EmulatorConfig
from tests.commands.warm_emulator import warm_emulators

CHANGING = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "LAMBDA_TASK_TMP")
"""and all that names a port"""


def seen(*, warm: bool) -> dict[str, Any]:
    """What a handler sees of its invocation, but for what no two emulators share. Nothing of the emulator is left."""
    warm_emulators(warm)
    with Emulator(EmulatorConfig(handler="gradmux.infra.local.samples:describe", preload=())) as emulator:
        secret = emulator.secret
        session = closed_session("us-east-1", secret.access_key, secret.secret_key)
        client = boto3.Session(botocore_session=session).client("lambda", endpoint_url=emulator.lambda_endpoint)
        answer = client.invoke(FunctionName=emulator.config.function, Payload=b"{}")
        told: dict[str, Any] = json.loads(answer["Payload"].read())
        pids = [pid for pid, _ in emulator.started.processes.values()]
        assert len(pids) == 3
        assert os.getpgid(pids[0]) == pids[0], "a session of its own: Ctrl-C is not for it"
    assert [pid for pid in [*pids, told["pid"]] if psutil.pid_exists(pid)] == []
    environment = {name: value for name, value in told["environment"].items() if name not in CHANGING}
    plain = {name: value for name, value in environment.items() if "127.0.0.1:" not in value}
    return {
        **{name: told[name] for name in ("arn", "function", "memory_mb", "log_stream", "client_context")},
        "environment": plain,
        "names": sorted(environment),
    }


def test_a_worker_sees_the_same() -> None:
    assert seen(warm=True) == seen(warm=False)
