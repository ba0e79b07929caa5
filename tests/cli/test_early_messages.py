"""`gc-partial` from a job file to weights: over the emulator first messages come alone, and before the last ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gradmux.infra.local import DelayPlan, Emulator
from gradmux.orchestrator.job_file import load_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import Header, read_record
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import open_bucket
from tests.cli.conftest import Gradmux

JOB = """
name = "early"
cluster = { workers = 4, invoke = "INVOKE", backend = "aws", bucket = "far-away" }
scheme = { name = "gc-partial", m = 1, s = 1, code = "CODE" }
data = { train = "digits:train", batch_size = 96 }
training = { steps = 2 }
models = [{ name = "mlp", factory = "early_models:mlp", optimizer = { name = "Adam", lr = 1e-2 } }]
"""
MODELS = """
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""
SLOPE_S = 1.0
"""seconds per batch: the first message after 1/8 of one, the second after 3/8"""


@pytest.mark.parametrize(("code", "invoke"), [("cyclic", "request"), ("fractional", "request"), ("cyclic", "event")])
def test_each_worker_is_heard_twice_and_in_order(
    gradmux: Gradmux, account: Emulator, tmp_path: Path, code: str, invoke: str
) -> None:
    account.set_delays(DelayPlan.of([[0.3] * 4], slope_s=SLOPE_S))
    (tmp_path / "early_models.py").write_text(MODELS)
    job = tmp_path / "job.toml"
    job.write_text(JOB.replace("CODE", code).replace("INVOKE", invoke))
    ran = gradmux("submit", job, "--json")
    assert ran.code == 0, ran.err
    lines = list(read_record(Path(ran.document["record"])))
    heard = [item for line in lines if not isinstance(line, Header) for item in line.arrivals]
    for place in {(item.round, item.worker) for item in heard}:
        messages = [(item.slots, item.final) for item in heard if (item.round, item.worker) == place]
        assert messages == [((0,), False), ((1,), True)]
    assert {item.round for item in heard} == {0, 1}
    assert ran.document["load"] == pytest.approx(3 / 8)
    assert ran.document["decode"]["max_residual"] < 1e-9
    assert_ordinary(job, Path(ran.document["models"][0]["checkpoint"]))


def assert_ordinary(job: Path, checkpoint: Path) -> None:
    """The weights are those of one process that trained on the same batches."""
    expected = Reference.of(prepare_job(load_job(job), Materials(), job.parent, open_bucket)).modules["mlp"]
    weights = load_file(checkpoint)
    for name, tensor in expected.state_dict().items():
        assert torch.allclose(weights[name], tensor, rtol=1e-5, atol=1e-6)
