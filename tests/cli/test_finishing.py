"""The end of a run: what a user's code raises while a model is judged costs that model's figures, nothing else."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.record import EndLine, FileRecord, Header
from gradmux.orchestrator.runs.finish import finish
from gradmux.orchestrator.runs.paths import RunPaths, create_run
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.status import State, status_of
from gradmux.orchestrator.store import Keys, MemoryStore
from gradmux.orchestrator.training.trainer import TorchTrainer
from gradmux.orchestrator.training.trying import TRIED_ROWS
from tests.orchestrator.training.bench import make_dataset, mlp


class Moody(nn.Module):
    """Is judged on a few rows and on no more."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > TRIED_ROWS and not self.training:
            raise ValueError("too many\nrows")
        return self.line(x)  # type: ignore[no-any-return]


@pytest.fixture
def prepared() -> Prepared:
    data = make_dataset()
    tree = {
        "cluster": {"workers": 4},
        "scheme": {"name": "gc", "s": 1},
        "data": {"train": "arrays", "eval": "arrays", "batch_size": 20},
        "training": {"steps": 1},
        "models": [{"name": name, "factory": f"here:{name}"} for name in ("moody", "calm")],
    }
    materials = Materials({"moody": Moody, "calm": mlp}, train=(data.x, data.y), eval=(data.x, data.y))
    return prepare_job(parse_job(tree, "test"), materials, Path.cwd(), lambda _: MemoryStore())


@pytest.fixture
def paths(tmp_path: Path, prepared: Prepared) -> RunPaths:
    """A run whose last round is over."""
    found = create_run(
        tmp_path, "small", lambda paths: paths.job.write_text(prepared.config.model_dump_json()) and None
    )
    record = FileRecord(found.record)
    record.write(Header("small-1", "gc", {"stragglers": 1}, 4, 2, 1, 0, {}, {}, names=("moody", "calm")))
    record.write(EndLine("done", 1.0))
    record.close()
    return found


def trainer_of(prepared: Prepared) -> TorchTrainer:
    return TorchTrainer(prepared.models, prepared.plan, store=MemoryStore(), keys=Keys("test"))


def test_a_model_that_cannot_be_judged_keeps_its_weights_and_the_others_their_figures(
    prepared: Prepared, paths: RunPaths, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        moody, calm = finish(prepared, trainer_of(prepared), paths).run.models
    assert dict(moody.eval) == {}
    assert 0 <= calm.eval["accuracy"] <= 1
    assert moody.checkpoint.exists()
    assert calm.checkpoint.exists()
    (warning,) = caplog.messages
    assert warning == "model 'moody' could not be evaluated, its weights are saved: ValueError: too many"
    assert status_of(paths).state is State.DONE


def test_a_model_that_has_diverged_is_told_of_and_the_result_stays_json(
    prepared: Prepared, paths: RunPaths, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(replace(prepared, models=prepared.models[1:] * 2))
    *_, last = trainer.module(1).parameters()
    torch.nn.init.eye_(last.data.view(1, -1)).mul_(3e38)
    with caplog.at_level(logging.WARNING):
        finish(prepared, trainer, paths)
    assert any("model 'calm': its loss on the evaluation rows is" in message for message in caplog.messages)

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    told = json.loads(paths.result.read_text(), parse_constant=refused)
    assert set(told["models"][0]["eval"]) == {"loss", "accuracy"}
    assert set(told["models"][1]["eval"]) == {"accuracy"}
