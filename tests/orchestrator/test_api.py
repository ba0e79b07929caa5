"""A `Job` in Python is the job that a file would describe, plus the functions and arrays that a file cannot hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradmux import Job, Model, train
from gradmux.orchestrator.config import TrainingConfig
from gradmux.orchestrator.errors import ConfigError

ROWS = ([[0.0], [1.0]], [0, 1])


def make_mlp(hidden: int = 4) -> None:
    raise AssertionError(f"must not be called here ({hidden})")


def job(**changed: Any) -> Job:
    fields: dict[str, Any] = {"models": [Model("a", make_mlp)], "data": ROWS, "batch_size": 2, "steps": 3}
    return Job(**{**fields, **changed})


def test_fields_become_sections() -> None:
    config = job(scheme="m-sgc", burst=1, window=2, max_stragglers=4, workers=16, wait="mu", mu=0.5).config()
    assert config.scheme.parameters == {"burst": 1, "window": 2, "max_stragglers": 4}
    assert (config.scheme.wait, config.scheme.mu) == ("mu", 0.5)
    assert config.cluster.workers == 16
    assert config.training.steps == 3


def test_options_of_rounds_are_given_like_parameters() -> None:
    config = job(scheme="gc", stragglers=1, parameters={"in_flight_cap": 0.1, "harvest_late": False}).config()
    assert (config.scheme.in_flight_cap, config.scheme.harvest_late) == (0.1, False)
    assert config.scheme.parameters == {"stragglers": 1}


def test_optimizers_by_name_or_with_arguments() -> None:
    models = [Model("a", make_mlp), Model("b", make_mlp, optimizer=("Adam", {"lr": 0.1}), args={"hidden": 8})]
    config = job(models=models).config()
    assert [model.optimizer.name for model in config.models] == ["SGD", "Adam"]
    assert config.models[1].optimizer.arguments == {"lr": 0.1}
    assert config.models[1].args == {"hidden": 8}


@pytest.mark.parametrize("factory", [make_mlp, lambda: None, Model], ids=["function", "lambda", "class"])
def test_factories_of_any_kind_keep_a_name_in_the_record(factory: Callable[..., Any]) -> None:
    config = job(models=[Model("a", factory)]).config()
    assert ":" in config.models[0].factory
    assert job(models=[Model("a", factory)]).materials().factories == {"a": factory}


def test_factories_by_path_and_data_by_name_need_no_materials() -> None:
    named = job(models=[Model("a", "mymodels:mlp")], data="digits:train")
    assert named.config().data.train == "digits:train"
    assert named.materials().factories == {}
    assert named.materials().train is None


def test_mistakes_are_told_as_for_a_file() -> None:
    with pytest.raises(ConfigError, match=r"Job: training\.steps: must be at least 1 \(is 0\)"):
        job(steps=0).config()


def test_training_of_a_job_file_can_be_said_in_python() -> None:
    scheduled = Model("a", make_mlp, scheduler=("StepLR", {"step_size": 5}))
    given = job(models=[scheduled, Model("b", make_mlp)], dtype="float64", clip_norm=0.5, checkpoint_every=7, seed=3)
    config = given.config()
    training = config.training
    assert (training.dtype, training.clip_norm, training.checkpoint_every, training.seed) == ("float64", 0.5, 7, 3)
    first, second = config.models
    assert first.scheduler is not None
    assert (first.scheduler.name, first.scheduler.arguments) == ("StepLR", {"step_size": 5})
    assert second.scheduler is None
    assert job().config().training == TrainingConfig(steps=3), "what is not said is as in a job file"


def test_data_are_given_as_a_program_has_them() -> None:
    import torch
    from torch.utils.data import TensorDataset

    x, y = torch.zeros(5, 3), torch.arange(5)
    rows, judged = TensorDataset(x, y), {"a": x[:2]}
    given = job(data=rows, eval_data=judged, rows={"scale": 255.0})
    assert given.config().data.train == "arrays"
    assert given.config().data.scale == 255.0
    assert given.materials().train is rows
    assert given.materials().eval is judged
    assert job(data=Path("x.npz")).config().data.train == "x.npz"
    assert job(data=Path("x.npz")).materials().train is None


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no backend 'moon'; installed: .*local"):
        train(job(), backend="moon")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import gradmux, gradmux.orchestrator, sys; sys.exit(bool({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
