"""How gradients travel in real runs: half the bytes where weights are 0 and 1, and a warning where rounding grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from gradmux.orchestrator.job_file import load_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import open_bucket
from tests.cli.conftest import Gradmux

MODELS = """
from torch import nn

def line():
    return nn.Linear(64, 10)
"""
JOB = """
name = "wire"
cluster = { workers = 6, backend = "aws", bucket = "far-away" }
scheme = { name = "gc", s = 1 }
data = { train = "digits:train", batch_size = 96 }
training = { steps = 3 }
models = [{ name = "line", factory = "wire_models:line", optimizer = { name = "SGD", lr = 0.5 } }]
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "wire_models.py").write_text(MODELS)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def difference(job: Path, document: dict[str, Any]) -> float:
    """|weights - ordinary training's| / |ordinary training's|."""
    expected = Reference.of(prepare_job(load_job(job), Materials(), job.parent, open_bucket)).modules["line"]
    weights = load_file(document["models"][0]["checkpoint"])
    pairs = [(weights[name].double(), tensor.double()) for name, tensor in expected.state_dict().items()]
    return float(sum((a - b).square().sum() for a, b in pairs) / sum(b.square().sum() for _, b in pairs)) ** 0.5


@pytest.mark.usefixtures("account")
def test_float16_results_train_within_their_rounding(gradmux: Gradmux, job: Path) -> None:
    ran = gradmux("submit", job, "--json")
    exact = ran.document
    assert "amplified" not in ran.err
    half = gradmux("submit", job, "--json", "--set", 'training.results="float16"').document
    assert difference(job, exact) < 1e-6
    assert 1e-6 < difference(job, half) < 1e-3


@pytest.mark.parametrize("code", ["cyclic", "dft"])
def test_codes_that_amplify_rounding_refuse_float16(gradmux: Gradmux, job: Path, code: str) -> None:
    scheme = f'scheme={{name="gc", s=1, code="{code}"}}'
    ran = gradmux("submit", job, "--dry-run", "--set", scheme, "--set", 'training.results="float16"')
    assert ran.code == 2
    assert (
        ran.err
        == 'gradmux: results = "float16" needs decode weights of 0 and 1: use code = fractional, or leave it out\n'
    )


@pytest.mark.usefixtures("account")
def test_a_noisy_decode_is_warned_of_once(gradmux: Gradmux, job: Path) -> None:
    """A cyclic code whose seed happens to be a bad one: whoever straggles, amplification is above 300."""
    noisy = [
        "--set",
        "cluster.workers=12",
        "--set",
        'scheme={name="gc", s=1, code="cyclic"}',
        "--set",
        "training.seed=455",
    ]
    ran = gradmux("submit", job, "--json", *noisy)
    assert ran.code == 0, ran.err
    assert ran.document["decode"]["max_amplification"] > 100
    assert ran.err.count("a decode amplified rounding") == 1
