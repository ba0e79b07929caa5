"""A whole job whose gradients are estimates: what its steps are divided by, as the job file says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme, parse_params
from gradmux.orchestrator.schemes.scheme import Context
from tests.cli.conftest import Gradmux

ROWS, LR = 60, 0.5
FACTOR = 6 / 5
"""1 / (1 - p): of 4 workers in 2 groups, both of one group are the last two with probability p = 1/6"""
JOB = """
[data]
train = "rows.npz"
batch_size = 60
[scheme]
name = "agc"
s = 1
r = 2
unbiased = {unbiased}
normalise = "{normalise}"
[training]
steps = 1
dtype = "float64"
[cluster]
workers = 4
[[models]]
name = "m"
factory = "plain_models:linear"
optimizer = {{ name = "SGD", lr = 0.5 }}
"""
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 5))
Y = (X[:, 0] > 0).astype(np.int64)
OFF = 0.5 - np.eye(2)[Y]
"""(rows, classes) softmax less target at weights of 0"""
GRADIENT, BIAS = OFF.T @ X / ROWS, OFF.mean(axis=0)
MODELS = """
from torch import nn

def linear():
    model = nn.Linear(5, 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model
"""


@dataclass(frozen=True)
class OneStep:
    """One step from weights of 0, by the answers of two workers."""

    folder: Path
    gradmux: Gradmux

    def moved(self, fast: tuple[int, int], normalise: str, unbiased: str = "true") -> np.ndarray:
        """(p,) what the step adds, the other two workers being slow."""
        (self.folder / "job.toml").write_text(JOB.format(normalise=normalise, unbiased=unbiased))
        delays_s = ["0.05" if worker in fast else "1.5" for worker in range(4)]
        (self.folder / "delays.csv").write_text(",".join(delays_s))
        emulator = f'emulator={{delays="{self.folder / "delays.csv"}"}}'
        told = self.gradmux("submit", self.folder / "job.toml", "--json", "-q", "--set", emulator)
        assert told.code == 0, told.err
        weights = load_file(told.document["models"][0]["checkpoint"])
        return np.concatenate([weights["weight"].ravel(), weights["bias"]])


@pytest.fixture
def one_step(tmp_path: Path, gradmux: Gradmux) -> OneStep:
    np.savez(tmp_path / "rows.npz", x=X, y=Y)
    (tmp_path / "plain_models.py").write_text(MODELS)
    return OneStep(tmp_path, gradmux)


def partners() -> tuple[tuple[int, int], tuple[int, int]]:
    """Two workers of one group, and two of different groups, in the only job."""
    params = parse_params(REGISTRY["agc"], {"s": 1, "r": 2, "unbiased": "true"})
    tasks = build_scheme("agc", params, Context(4, 1)).assign(0)
    chunks = {worker: slots[0].chunks for worker, slots in tasks.items() if slots[0] is not None}
    same = next(worker for worker in range(1, 4) if chunks[worker] == chunks[0])
    return (0, same), (0, 1 if same != 1 else 2)


def test_the_sum_is_divided_as_the_job_file_says(one_step: OneStep) -> None:
    alone, both = partners()
    exact = -LR * np.concatenate([GRADIENT.ravel(), BIAS])
    assert np.allclose(one_step.moved(both, "batch"), FACTOR * exact)
    assert np.allclose(one_step.moved(both, "decoded"), exact)
    half = one_step.moved(alone, "batch")
    assert not np.allclose(half, exact, rtol=1e-3)
    # Of 30 rows in, with factor 6/5: divided by 60, or by 6/5 of 30.
    assert np.allclose(half, FACTOR * 30 / 60 * one_step.moved(alone, "decoded"))


def test_a_truth_value_is_one(one_step: OneStep) -> None:
    """`unbiased = false` leaves the factor out where every group is in."""
    _, both = partners()
    exact = -LR * np.concatenate([GRADIENT.ravel(), BIAS])
    assert np.allclose(one_step.moved(both, "batch", unbiased="false"), exact)
