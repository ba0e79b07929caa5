"""Backends: the contract on three of them, jobs on one from elsewhere, and what is told when one cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import numpy as np
import pytest
from safetensors.torch import load_file
from torch import nn

from gradmux import Job, Model, train
from gradmux.infra.local import Emulator, EmulatorConfig
from gradmux.orchestrator.backends import Billed, PlaceNote, find_backend, forget, installed_backends, register
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import job_schema, load_job, parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore
from tests.cli.conftest import Gradmux, gradmux, home
from tests.orchestrator.backend_contract import WORKERS, BackendContract, Case
from tests.orchestrator.processes import NAME, PROCESSES

__all__ = ["gradmux", "home"]

BUCKET = "contract"


class TestLocal(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        return Case("local")


class TestAws(BackendContract):
    """AWS's own variables lead to an emulator."""

    @pytest.fixture(scope="class")
    @classmethod
    def variables(cls) -> Iterator[dict[str, str]]:
        with Emulator(EmulatorConfig(concurrency=64, warm=WORKERS, memory_mb=2048, timeout_s=20.0)) as emulator:
            yield emulator.environment()

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, variables: dict[str, str]) -> Iterator[Case]:
        """The variables stand while places are opened that serve all tests."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            boto3.Session().client("s3").create_bucket(Bucket=BUCKET)
            yield Case("aws", {"bucket": BUCKET, "concurrency": 64})

    @pytest.fixture(autouse=True)
    def _reached(self, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        """No test sees such variables but those that ask for them."""
        for name, value in variables.items():
            monkeypatch.setenv(name, value)


@pytest.fixture(scope="class")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The backend "processes", as an installed distribution brings it."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "gradmux_processes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradmux-processes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[gradmux.backends]\n{NAME} = tests.orchestrator.processes:PROCESSES\n"
        "broken = tests.orchestrator.processes:NOT_THERE\nempty = tests.orchestrator.processes:FREE\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    forget(NAME)


@pytest.mark.usefixtures("elsewhere")
class TestProcesses(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, elsewhere: None) -> Case:
        return Case(NAME)


MODELS = """
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""
JOB = f"""
name = "strange"
cluster = {{ backend = "{NAME}", workers = 4 }}
scheme = {{ name = "gc", s = 1 }}
data = {{ train = "digits:train", batch_size = 64 }}
training = {{ steps = 3 }}
models = [{{ name = "mlp", factory = "strange_models:mlp", optimizer = {{ name = "Adam", lr = 1e-2 }} }}]

[{NAME}]
start_method = "forkserver"
"""


@pytest.mark.usefixtures("elsewhere")
class TestJobsElsewhere:
    """On a backend that no file of the package knows."""

    @pytest.fixture
    def job(self, tmp_path: Path) -> Path:
        (tmp_path / "strange_models.py").write_text(MODELS)
        (tmp_path / "job.toml").write_text(JOB)
        return tmp_path / "job.toml"

    def test_submitted_by_the_command(self, gradmux: Gradmux, job: Path) -> None:
        ran = gradmux("submit", job, "--json")
        assert ran.code == 0, ran.err
        expected = Reference.of(prepare_job(load_job(job), Materials(), job.parent, lambda _: MemoryStore()))
        weights = load_file(ran.document["models"][0]["checkpoint"])
        for name, tensor in expected.modules["mlp"].state_dict().items():
            np.testing.assert_allclose(weights[name].numpy(), tensor.numpy(), rtol=1e-4, atol=1e-5)
        cost = gradmux("cost", ran.document["run"], "--json").document
        assert cost["prices"]["date"] == "never", "it is billed by its own table"
        assert cost["total"]["usd"] == 0.0

    def test_its_cost_is_estimated_and_it_is_examined(self, gradmux: Gradmux, job: Path) -> None:
        told = gradmux("submit", job, "--dry-run", "--json").document
        assert told["backend"] == NAME
        assert told["estimate"]["usd"] == 0.0
        ran = gradmux("doctor", job, "--json")
        assert (ran.code, [each["check"] for each in ran.document["findings"]]) == (0, ["job", "workers"])

    def test_faults_need_an_emulator(self, gradmux: Gradmux, job: Path) -> None:
        ran = gradmux("submit", job, "--faults", "crash=0.1")
        assert ran.code == 2
        assert "they need cluster.backend = 'local', not 'processes'" in ran.err

    def test_its_keys_are_checked_and_described(self, gradmux: Gradmux, job: Path) -> None:
        ran = gradmux("submit", job, "--set", "processes.start_method=vfork")
        assert ran.err == "gradmux: job.toml: processes.start_method: must be 'spawn' or 'forkserver' (is \"vfork\")\n"
        described = job_schema()["$defs"]["ProcessesSection"]["properties"]["start_method"]["description"]
        assert described == "as `multiprocessing` names it"

    def test_from_python(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 2, 40)
        models = [Model("line", _line, optimizer=("SGD", {"lr": 0.1}))]
        job = Job(models=models, data=rows, batch_size=20, steps=4, workers=4, scheme="gc", stragglers=1)
        trained = train(job, backend=NAME, home=tmp_path)
        prepared = prepare_job(job.config(), job.materials(), tmp_path, lambda _: MemoryStore())
        assert Reference.of(prepared).difference(trained) < 1e-5

    def test_one_that_cannot_be_had_says_why_and_keeps_no_other_from_work(self) -> None:
        with pytest.raises(ConfigError, match=r"backend 'broken' cannot be loaded from tests\.orchestrator\.proc"):
            find_backend("broken")
        with pytest.raises(ConfigError, match=r"backend 'empty': .* is no backend, it lacks name, limits"):
            find_backend("empty")
        assert {"aws", "local", NAME} <= {each.name for each in installed_backends()}


def _line() -> nn.Module:
    return nn.Linear(5, 2)


def test_a_backend_is_registered_once() -> None:
    register(PROCESSES)
    register(PROCESSES)
    try:
        assert find_backend(NAME) is PROCESSES
        with pytest.raises(ConfigError, match="already registered"):
            register(type(PROCESSES)())
    finally:
        forget(NAME)


def test_a_misspelt_backend_is_told_with_all_names() -> None:
    with pytest.raises(ConfigError, match=r"there is no backend 'locl'; did you mean 'local'\?; installed: aws, local"):
        find_backend("locl")


def test_where_a_backend_is_missing_that_is_told_before_its_sections() -> None:
    tree = {**Case("processs").tree(), "processs": {"start_method": "spawn"}}
    with pytest.raises(ConfigError) as refused:
        parse_job(tree, "job.toml")
    first, second = str(refused.value).splitlines()
    assert first == "job.toml: cluster.backend: there is no backend 'processs'; installed: aws, local"
    assert second.startswith("job.toml: processs: is not a key of this section")


def test_notes_of_former_lives_are_read() -> None:
    """As version 0.1 wrote them."""
    former = {
        "backend": "aws", "bucket": "b", "s3_url": None, "function": "f", "timeout_s": 45.0, "lambda_url": None,
        "memory_mb": 3008, "arm": True,
    }  # fmt: skip
    own = {"bucket": "b", "s3_url": None, "function": "f", "lambda_url": None}
    assert PlaceNote.of(former) == PlaceNote("aws", 45.0, Billed(3008, arm=True), own)
