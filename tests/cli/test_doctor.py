"""`doctor` as a command, with the emulator behind it; and that nothing local ever leaves the machine."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmux.orchestrator.doctor import look_at_job
from gradmux.orchestrator.job_file import load_job
from gradmux.orchestrator.runs.ownership import distrust
from tests.cli.conftest import Gradmux, Ran

JOB = """
name = "small"
[cluster]
workers = 4
concurrency = 8
[scheme]
name = "uncoded"
[data]
train = "digits:train"
batch_size = 128
[training]
steps = 2
[[models]]
name = "mlp"
factory = "doctors_models:mlp"
args = { hidden = 16 }
"""
MODELS = """
from torch import nn

def mlp(hidden):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir(mode=0o755)
    (folder / "doctors_models.py").write_text(MODELS)
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


def levels(ran: Ran) -> dict[str, str]:
    return {each["check"]: each["level"] for each in ran.document["findings"]}


class Trap:
    """A proxy that nobody may use: it counts who tries."""

    def __init__(self) -> None:
        self.caught = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.caught += 1
            connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Trap]:
    """A shell that is full of ways to AWS, all of which lead into the trap."""
    made = Trap()
    (tmp_path / "config").write_text(f"[profile real]\nregion = eu-west-1\nendpoint_url = {made.url}\n")
    (tmp_path / "credentials").write_text("[real]\naws_access_key_id = AKIAREAL\naws_secret_access_key = real\n")
    variables = {
        "AWS_PROFILE": "real",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_ACCESS_KEY_ID": "AKIAREAL",
        "AWS_SECRET_ACCESS_KEY": "real",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": made.url,
        "AWS_ENDPOINT_URL_LAMBDA": made.url,
        "AWS_ENDPOINT_URL_S3": made.url,
        "AWS_ENDPOINT_URL_STS": made.url,
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), made.url),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    yield made
    made.close()


def test_local_mode_cannot_reach_aws_whatever_the_environment_holds(gradmux: Gradmux, job: Path, trap: Trap) -> None:
    looked = gradmux("doctor", job, "--json")
    assert looked.code == 0, looked.out
    assert set(levels(looked).values()) == {"ok"}
    assert "http://127.0.0.1" in next(e["says"] for e in looked.document["findings"] if e["check"] == "endpoints")
    trained = gradmux("submit", job, "--json")
    assert trained.code == 0, trained.err
    assert "AKIAREAL" not in looked.out + trained.out + trained.err
    assert trap.caught == 0


def test_the_emulator_is_fit_and_its_limit_is_exit_code_4(gradmux: Gradmux) -> None:
    ran = gradmux("doctor", "--local", "--workers", "2000", "--json")
    assert ran.code == ran.document["exit_code"] == 4
    found = levels(ran)
    assert found.pop("concurrency") == "failure"
    assert {found[check] for check in ("function", "handshake", "bucket", "worker's bucket")} == {"ok"}


def test_a_job_that_cannot_be_prepared_is_a_finding(job: Path) -> None:
    job.write_text(JOB.replace("doctors_models:mlp", "doctors_models:nothing"))
    (finding,), worker_mb = look_at_job(job, load_job(job))
    assert (finding.check, finding.level, worker_mb) == ("job", "failure", None)
    assert finding.says.startswith("model 'mlp': factory")


def test_code_of_others_is_not_even_imported(job: Path) -> None:
    (job.parent / "doctors_models.py").write_text("raise SystemExit('imported')\n")
    job.parent.chmod(0o777)
    (finding,), worker_mb = look_at_job(job, load_job(job))
    assert (finding.check, finding.level, worker_mb) == ("code", "warning", None)
    assert "may be changed by everybody: its code runs with your credentials" in finding.says


def test_whose_files_are_trusted(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    tmp_path.chmod(0o755)
    assert distrust([file]) == ""
    assert distrust([tmp_path / "missing.py"]) == ""
    file.chmod(0o666)
    assert f"{file} may be changed by everybody" in distrust([file])
    file.chmod(0o644)
    if os.getuid() == 0:
        os.chown(file, 12345, -1)
        assert f"{file} belongs to user 12345" in distrust([file])


def test_compare_trains_both_ways_and_says_how_far_they_are_apart(gradmux: Gradmux, job: Path) -> None:
    ran = gradmux("doctor", job, "--compare", "--json")
    assert ran.code == 0, ran.err
    assert levels(ran) == {"job": "ok", "compare mlp": "ok"}
    (told,) = (each["says"] for each in ran.document["findings"] if each["check"] == "compare mlp")
    assert "after 2 steps the weights of workers and of a plain torch loop are" in told
    assert gradmux("doctor", "--compare").code == 2


def test_compare_finds_a_model_that_workers_train_otherwise(gradmux: Gradmux, job: Path) -> None:
    """Its forward depends on where it runs, which nothing but a comparison shows."""
    job.write_text(job.read_text().replace("doctors_models", "odd_models"))
    (job.parent / "odd_models.py").write_text(
        "import os\n"
        "from torch import nn\n"
        "class Odd(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * (2 if 'AWS_LAMBDA_FUNCTION_NAME' in os.environ else 1)\n"
        "def mlp(hidden):\n"
        "    return Odd(64, 10)\n"
    )
    ran = gradmux("doctor", job, "--compare", "--json")
    assert ran.code == 3
    assert levels(ran) == {"job": "ok", "compare mlp": "failure"}
