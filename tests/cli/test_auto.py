"""`scheme = "auto"` through the emulator: it measures, switches, and trains what ordinary training gives."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from torch import nn

from gradmux import Job, Model, train
from gradmux.orchestrator.auto import AUTO
from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.delays.formats import save_profile
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.record import EndLine, Header, RoundLine, read_record
from gradmux.orchestrator.reference import Reference
from gradmux.orchestrator.runs.prepare import prepare_job
from gradmux.orchestrator.store import MemoryStore


def make_linear(outputs: int) -> nn.Module:
    return nn.Linear(5, outputs)


def heavy_tailed(path: Path) -> str:
    """8 workers that answer after 30 ms, every eighth or so only after 0.4 s."""
    rng = np.random.default_rng(5)
    delays_s = 0.03 + 0.37 * (rng.random((200, 8)) < 0.12)
    save_profile(DelayProfile(delays_s, load=1 / 8, slope_s=0.02), path)
    return str(path)


def job_of(delays: str, workers: int | Literal["auto"] = 8, **changes: object) -> Job:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    models = [Model(name, make_linear, args={"outputs": 2}, optimizer=("SGD", {"lr": 0.01})) for name in "ab"]
    cluster = {"concurrency": 32, **changes}
    return Job(
        models=models,
        data=(x, x[:, :2] * 3),
        loss="mse_loss",
        batch_size=30,
        steps=24,
        workers=workers,
        scheme="auto",
        cluster=cluster,
        emulator={"delays": delays},
    )


def test_it_switches_and_trains_as_in_one_process(tmp_path: Path) -> None:
    job = job_of(heavy_tailed(tmp_path / "tail.npz"))
    trained = train(job, home=tmp_path)
    prepared = prepare_job(job.config(), job.materials(), tmp_path, lambda bucket: MemoryStore())
    assert Reference.of(prepared).difference(trained) < 1e-5
    lines = list(read_record(trained.run.record))
    headers = [line for line in lines if isinstance(line, Header)]
    assert [header.params for header in headers[:2]] == [{"per_job": n, "stragglers": 0} for n in (8, 2)], "uncoded"
    assert [header.workers for header in headers[:2]] == [8, 2]
    assert (headers[2].scheme, headers[2].params) != ("pipeline", {"per_job": 8, "stragglers": 0})
    chosen = headers[2].extra[AUTO]
    assert chosen["predicted_s"] < 0.95 * chosen["uncoded_s"]
    decoded = [
        (each.model, each.step) for line in lines if isinstance(line, RoundLine | EndLine) for each in line.decoded
    ]
    assert sorted(decoded) == [(model, step) for model in range(2) for step in range(24)]
    assert trained.run.params["scheme"] == headers[-1].scheme


def test_the_number_of_workers_can_be_left_to_it(tmp_path: Path) -> None:
    job = job_of("none", workers="auto", concurrency=6)
    prepared = prepare_job(job.config(), job.materials(), tmp_path, lambda bucket: MemoryStore())
    assert prepared.scheme().workers == 6


def test_a_job_that_names_neither_scheme_nor_workers_is_trained(tmp_path: Path) -> None:
    job = job_of(heavy_tailed(tmp_path / "tail.npz"), workers="auto", concurrency=8)
    trained = train(job, home=tmp_path)
    headers = [line for line in read_record(trained.run.record) if isinstance(line, Header)]
    assert headers[0].workers == 8, "no more than the concurrency"
    assert headers[-1].extra[AUTO]["workers"] <= 8
    assert [model.steps for model in trained.run.models] == [24, 24]


def test_parameters_are_its_own_affair(tmp_path: Path) -> None:
    job = job_of("none")
    config = job.config()
    given = config.model_copy(update={"scheme": config.scheme.model_validate({"name": "auto", "s": 3})})
    with pytest.raises(ConfigError, match="auto chooses all parameters itself: leave out s"):
        prepare_job(given, job.materials(), tmp_path, lambda bucket: MemoryStore())
