"""`gradmux submit`: what is wrong is told before anything starts; what is right trains exactly as one process would."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

from gradmux.orchestrator.job_file import load_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import EndLine, Header, RoundLine, read_record
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore
from tests.cli.conftest import Gradmux
from tests.commands.command_line import wait_until

JOB = """
name = "small"
[cluster]
workers = 6
[scheme]
name = "m-sgc"
B = 1
W = 2
lambda = 2
[data]
train = "digits:train"
eval = "digits:test"
batch_size = 96
[training]
steps = 4
[[models]]
name = "mlp"
factory = "small_models:mlp"
args = { hidden = 8 }
optimizer = { name = "Adam", lr = 1e-2 }
[sweep]
"optimizer.lr" = [1e-2, 1e-3]
"""
MODELS = """
from torch import nn
import torch

def mlp(hidden):
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

def raises():
    raise ValueError("no hidden size\\nwas given")

def no_module():
    return 3

def leaves():
    raise SystemExit(3)

def nan_loss(output, target):
    return (output * float("nan")).sum()

def nan_later(output, target):
    return torch.nn.functional.cross_entropy(output, target, reduction="sum") * (1 if len(target) < 8 else float("nan"))

def mean_loss(output, target):
    return torch.nn.functional.cross_entropy(output, target)

def by_class(output, target):
    return output.sum(0)
"""
GC = 'scheme={name="gc", s=1}'


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "small_models.py").write_text(MODELS)
    np.savez(tmp_path / "narrow.npz", x=np.ones((8, 7)), y=np.zeros(8, int))
    np.savez(tmp_path / "labels.npz", x=np.ones((100, 64)), y=np.eye(100, dtype=int)[99] * 10)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_dry_run_tells_the_plan_and_leaves_nothing(gradmux: Gradmux, job: Path, home: Path) -> None:
    plan = gradmux("submit", job, "--dry-run", "--json").document
    assert plan["scheme"] == "m-sgc"
    assert plan["params"]["max_stragglers"] == 2
    assert (plan["workers"], plan["jobs"], plan["delay"], plan["rounds"]) == (6, 8, 1, 9)
    assert plan["models"] == ["mlp-lr=0.01", "mlp-lr=0.001"]
    assert not home.exists()
    assert "mlp-lr=0.01, mlp-lr=0.001" in gradmux("submit", job, "--dry-run").out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["scheme.name=m-gsc"], "unknown scheme 'm-gsc' (did you mean 'm-sgc'?)"),
        (["scheme.name=sr-sgc", "scheme.B=2", "scheme.W=4"], "W"),
        (["scheme.lambda=7"], "lambda"),
        (["scheme.wiat=mu"], "has no parameter 'wiat'"),
        (['scheme={name="gc"}'], "gc needs s (stragglers)"),
        (["sweep={}"], "T = 1 and so needs at least T + 1 = 2 models"),
        (["data.train=nowhere.npz"], "nowhere.npz"),
        (["data.eval=digits:tset"], "digits:tset"),
        (["data.eval=narrow.npz"], "cannot be evaluated on x float32 (4, 7) and y int64 (4,): RuntimeError: mat1"),
        (["data.train=labels.npz"], "label 10 (row 99), has 10 outputs, for labels 0 to 9: IndexError"),
        (['scheme={name="fastest-k", k=1}', "data.batch_size=5"], "6 chunks of a batch, but 1 have no rows"),
        (['scheme={name="gc", s=1, approximate=true}', "data.batch_size=2"], "use larger batches"),
        (["data.batch_size=100000"], "batch_size = 100000 is more than the"),
        (["models.0.factory=small_models:raises", "models.0.args={}", "sweep={}", GC], "ValueError: no hidden size"),
        (["models.0.factory=small_models:no_module", "models.0.args={}", "sweep={}", GC], "expected a torch.nn.Module"),
        (["models.0.factory=small_models:mpl"], "mpl"),
        (["models.0.factory=other_models:mlp"], "other_models"),
        (["models.0.optimizer.name=Adamm"], "torch.optim has no optimizer 'Adamm'"),
        (
            ["models.0.factory=small_models:leaves", "models.0.args={}", "sweep={}", GC],
            "its factory raised SystemExit: 3",
        ),
        (["models.0.optimizer.lr=1e300", "sweep={}", GC], "model 'mlp': optimizer Adam cannot do step 0"),
        (["training.loss=cross_entorpy"], "cross_entorpy"),
        (["training.loss=small_models:nan_loss"], "the loss is nan before the first step"),
        (["training.loss=small_models:mean_loss"], "returns a mean over the rows"),
        (["training.loss=small_models:by_class"], "gave shape (10,) for 4 rows"),
        (["training.loss=mse_loss"], "cannot be trained on x float32 (4, 64) and y int64 (4,)"),
        (["cluster.memory_mb=128", GC], "cluster.memory_mb = 128: a worker takes 260 MB for the largest model"),
        (["cluster.timeout_s=0.0001"], "cluster.timeout_s"),
        (["cluster.workers=auto"], 'cluster.workers = "auto"'),
        (["cluster.workers=2000"], "workers = 2000 do not fit concurrency = 1000"),
        (["cluster.backend=aws"], 'backend = "aws" needs bucket'),
    ],
)
def test_whatever_is_wrong_is_one_line_before_anything_starts(
    gradmux: Gradmux, job: Path, home: Path, overrides: list[str], message: str
) -> None:
    words = [word for override in overrides for word in ("--set", override)]
    ran = gradmux("submit", job, *words)
    assert ran.code == 2, ran.err
    assert len(ran.err.splitlines()) == 1
    assert message in ran.err
    assert not home.exists()


def test_the_schema_is_a_document(gradmux: Gradmux) -> None:
    ran = gradmux("submit", "--schema")
    assert ran.code == 0
    assert "scheme" in ran.document["required"]


def test_a_run_gives_the_weights_of_ordinary_training(gradmux: Gradmux, job: Path) -> None:
    ran = gradmux("submit", job, "--json", "--set", "emulator.faults={crash = 0.05, throttle = 0.05}")
    assert ran.code == 0, ran.err
    told = ran.document
    assert (told["state"], told["rounds"], told["run"]) == ("done", 9, "small-1")
    assert told["cost"]["billed_s"] > 0
    assert told["decode"]["max_residual"] < 1e-9
    assert [model["name"] for model in told["models"]] == ["mlp-lr=0.01", "mlp-lr=0.001"]
    assert all(0 <= model["eval"]["accuracy"] <= 1 for model in told["models"])
    assert json.loads(Path(told["record"]).with_name("result.json").read_text()) == told

    prepared = prepare_job(load_job(job), Materials(), job.parent, lambda bucket: MemoryStore())
    expected = Reference.of(prepared).modules
    for model in told["models"]:
        weights = load_file(model["checkpoint"])
        for name, tensor in expected[model["name"]].state_dict().items():
            assert torch.allclose(weights[name], tensor, rtol=1e-5, atol=1e-6)


def test_the_record_says_what_ran_and_how_it_ended(gradmux: Gradmux, job: Path) -> None:
    told = gradmux("submit", job, "--json", "-q", "--set", "training.steps=1", "--set", GC).document
    lines = list(read_record(Path(told["record"])))
    assert isinstance(lines[0], Header)
    assert (lines[0].scheme, lines[0].workers, lines[0].names) == ("gc", 6, ("mlp-lr=0.01", "mlp-lr=0.001"))
    assert [line.round for line in lines if isinstance(line, RoundLine)] == [0, 1]
    assert isinstance(lines[-1], EndLine)
    assert lines[-1].state == "done"


def test_cap_and_late_answers_are_set_in_the_job_file_or_beside_it(gradmux: Gradmux, job: Path) -> None:
    """gc decodes from two answers of six; with a cap of 0 all are in when a round closes, but for the last one."""
    gc = 'scheme={name="gc", s=2, harvest_late=false}'
    words = ["submit", job, "--json", "-q", "--set", gc, "--set", 'emulator={delays="lambda-like", time_scale=0.05}']
    records = []
    for more in ([], ["--set", "scheme.in_flight_cap=0"]):
        ran = gradmux(*words, *more)
        assert ran.code == 0, ran.err
        records.append(list(read_record(Path(ran.document["record"]))))
    free, capped = records
    told = [lines[0].limits for lines in (free, capped) if isinstance(lines[0], Header)]
    assert [each["in_flight_cap"] for each in told] == [None, 0.0]
    assert [each["harvest_late"] for each in told] == [False, False]
    running = [[line.in_flight for line in lines if isinstance(line, RoundLine)] for lines in (free, capped)]
    assert max(running[0]) > 0
    assert running[1][:-1] == [0] * (len(running[0]) - 1)


def test_a_loss_that_gives_nan_later_stops_with_one_line(gradmux: Gradmux, job: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    ran = gradmux("submit", job, "-q", "--set", "training.loss=small_models:nan_later")
    assert ran.code == 5
    assert len(ran.err.splitlines()) == 1
    assert "NonFinite" in ran.err
    wait_until(lambda: set(psutil.Process().children(recursive=True)) <= before)
