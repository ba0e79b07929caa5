"""Before anybody is called: a limit of the account that does not fit the job is told, and how calls are billed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from gradmux.infra.aws.errors import ApiError
from gradmux.infra.aws.preflight import billed_as, require_concurrency
from gradmux.infra.local import Emulator, EmulatorConfig
from gradmux.lambda_worker.handler import cpu_model
from gradmux.orchestrator.backends import Billed
from gradmux.orchestrator.config import ClusterConfig
from gradmux.orchestrator.errors import QuotaError
from tests.cli.conftest import Gradmux
from tests.cli.test_submit import GC, JOB, MODELS
from tests.infra.aws.fakes import ScriptedDoor

LIMIT = 4
CLUSTER = ClusterConfig(backend="aws", bucket="bucket", workers=64, concurrency=256)
NONE_OF_ITS_OWN = {"lambda.get_function_concurrency": ApiError("read", "ResourceNotFoundException", "")}


def account(limit: int) -> ScriptedDoor:
    limits = {"AccountLimit": {"ConcurrentExecutions": limit, "UnreservedConcurrentExecutions": limit}}
    return ScriptedDoor({"lambda.get_account_settings": limits, **NONE_OF_ITS_OWN})


@pytest.fixture
def new_account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """AWS's own variables lead to an account that has never asked for more."""
    with Emulator(EmulatorConfig(concurrency=LIMIT, warm=LIMIT, memory_mb=1024)) as emulator:
        for name, value in emulator.environment().items():
            monkeypatch.setenv(name, value)
        boto3.Session().client("s3").create_bucket(Bucket="far-away")
        yield emulator


def test_submit_refuses_what_the_account_does_not_allow(
    new_account: Emulator, gradmux: Gradmux, tmp_path: Path
) -> None:
    (tmp_path / "small_models.py").write_text(MODELS)
    (tmp_path / "job.toml").write_text(JOB)
    there = ["--set", GC, "--set", "cluster.backend=aws", "--set", "cluster.bucket=far-away", "--json"]
    ran = gradmux("submit", tmp_path / "job.toml", *there)
    assert ran.code == ran.document["exit_code"] == 4
    assert f"{LIMIT} of the account's {LIMIT} unreserved: too few for 6 workers at once" in ran.err
    assert f"or set cluster.workers = {LIMIT}" in ran.err
    assert new_account.admin.journal() == []
    assert gradmux("list", "--json").document["runs"] == [], "nothing was begun, so there is nothing to resume"
    fitting = [*there, "--set", f"cluster.workers={LIMIT}", "--set", f"cluster.concurrency={LIMIT}"]
    ran = gradmux("submit", tmp_path / "job.toml", *fitting, "--set", "training.steps=1")
    assert (ran.code, ran.document["state"]) == (0, "done"), ran.err
    cost = gradmux("cost", ran.document["run"], "--json").document
    assert cost["memory_mb"] == new_account.config.memory_mb == 1024, "the function's own, not the job's"
    assert ran.document["cpus"] == [cpu_model()], "results differ a little between processors, so they are recorded"


def test_calls_beyond_the_limit_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        require_concurrency(account(100), CLUSTER)
    assert "set cluster.concurrency = 100, else AWS refuses calls" in caplog.text
    caplog.clear()
    require_concurrency(account(1000), CLUSTER)
    assert caplog.text == ""
    with pytest.raises(QuotaError, match=r"quota-code L-B99A9384 --desired-value 256, or set cluster\.workers = 50"):
        require_concurrency(account(50), CLUSTER)


def test_who_may_only_call_functions_goes_on() -> None:
    denied = ApiError("lambda.get_account_settings", "AccessDeniedException", "no")
    door = ScriptedDoor({"lambda.get_account_settings": denied, "lambda.get_function": denied})
    require_concurrency(door, CLUSTER)
    assert billed_as(door, CLUSTER) == Billed()


def test_a_function_is_billed_as_it_is_and_not_as_the_job_says(caplog: pytest.LogCaptureFixture) -> None:
    configuration = {"MemorySize": 3008, "Architectures": ["arm64"]}
    with caplog.at_level(logging.WARNING):
        billed = billed_as(ScriptedDoor({"lambda.get_function": {"Configuration": configuration}}), CLUSTER)
    assert billed == Billed(3008, arm=True)
    assert "the function has 3008 MB, and is billed so; the job says cluster.memory_mb = 2048" in caplog.text


def test_a_job_for_a_function_that_is_not_there_leaves_no_run(
    new_account: Emulator, gradmux: Gradmux, tmp_path: Path
) -> None:
    (tmp_path / "small_models.py").write_text(MODELS)
    (tmp_path / "job.toml").write_text(JOB)
    fitting = f"cluster={{backend='aws', bucket='far-away', workers={LIMIT}, concurrency={LIMIT}, function='nobody'}}"
    ran = gradmux("submit", tmp_path / "job.toml", "--set", GC, "--set", fitting)
    assert ran.code == 3, ran.err
    assert "nobody" in ran.err
    assert gradmux("list", "--json").document["runs"] == []
