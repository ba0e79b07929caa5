"""`gradmux.train` over the local backend: functions and arrays of the caller, from a module and from a script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradmux import Job, Model, train
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore

README = Path(__file__).resolve().parents[2] / "README.md"


def make_linear(outputs: int) -> nn.Module:
    return nn.Linear(5, outputs)


def cubed_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """No loss of torch's own."""
    return (output - target).abs().pow(3).sum(dim=1)


@pytest.fixture
def job() -> Job:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    models = [Model(name, make_linear, args={"outputs": 2}, optimizer=("SGD", {"lr": 0.01})) for name in ("a", "b")]
    scheme = {"scheme": "m-sgc", "burst": 1, "window": 2, "max_stragglers": 1}
    return Job(models=models, data=(x, x[:, :2] * 3), loss=cubed_error, batch_size=30, steps=3, workers=4, **scheme)


def test_own_functions_and_arrays_train_as_in_one_process(job: Job, tmp_path: Path) -> None:
    trained = train(job, home=tmp_path)
    prepared = prepare_job(job.config(), job.materials(), tmp_path, lambda bucket: MemoryStore())
    assert list(trained) == ["a", "b"]
    assert len(trained) == 2
    assert Reference.of(prepared).difference(trained) < 1e-5
    assert trained.run.record.is_relative_to(tmp_path)
    assert trained.run.models[0].eval == {}


def test_a_job_that_cannot_be_leaves_nothing(job: Job, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        train(Job(models=job.models, data=job.data, batch_size=61, steps=1, workers=4), home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_the_readme_runs_as_a_script(tmp_path: Path) -> None:
    code = re.findall(r"^```python\n(import torch.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)[0]
    script = tmp_path / "example.py"
    script.write_text(code)
    environment = {**os.environ, "GRADMUX_HOME": str(tmp_path), "PYTHONPATH": str(README.parent)}
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "0.weight" in ran.stdout
