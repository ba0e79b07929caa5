"""The user's own optimizers and schedulers, from Python and by name: kept with the run, the same when it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradmux import Job, Model
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs.keep import keep_job, prepare_again
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.store import MemoryStore
from gradmux.orchestrator.training.checkpoint import load_state, save_state
from gradmux.orchestrator.training.models import Trained, prepare

STEPS = 12


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))


def job(**model: Any) -> Job:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(3, size=40)
    return Job(models=[Model("net", make_net, **model)], data=(x, y), batch_size=20, steps=STEPS, workers=2)


def prepared(described: Job, folder: Path) -> Prepared:
    return prepare_job(described.config(), described.materials(), folder, lambda bucket: MemoryStore())


def steps_alone(trained: Trained, count: int) -> None:
    """Steps by gradients that depend on nothing else."""
    for step in range(count):
        generator = torch.Generator().manual_seed(trained.steps + step)
        for parameter in trained.model.parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        trained.stepper.optimizer.step()
        assert trained.stepper.scheduler is not None
        trained.stepper.scheduler.step()
    trained.steps += count


def rates(trained: Trained) -> list[float]:
    return [float(group["lr"]) for group in trained.stepper.optimizer.param_groups]


def own_optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    others = [parameter for name, parameter in model.named_parameters() if not name.endswith("bias")]
    return torch.optim.AdamW([{"params": others}, {"params": biases, "weight_decay": 0.0}], lr=lr)


class Sawtooth(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self) -> list[float]:  # type: ignore[override]
        return [base * (1 - (self.last_epoch % 4) / 4) for base in self.base_lrs]


MODELS: list[dict[str, Any]] = [
    {"optimizer": (own_optimizer, {"lr": 0.1}), "scheduler": Sawtooth},
    {"optimizer": (torch.optim.SGD, {"lr": 0.1}), "scheduler": ("LambdaLR", {"lr_lambda": lambda step: 0.9**step})},
    {
        "optimizer": ("AdamW", {"lr": 0.1, "groups": [{"layers": ["*Norm*"], "weight_decay": 0.0, "lr": 0.3}]}),
        "scheduler": ("WarmupCosine", {"warmup_steps": 2}),
        "ema": 0.9,
    },
    {
        "optimizer": "Adam",
        "scheduler": (
            "SequentialLR",
            {
                "schedulers": [{"name": "ConstantLR"}, {"name": "LambdaLR", "lr_lambda": lambda step: 1 / (1 + step)}],
                "milestones": [3],
            },
        ),
    },
]


@pytest.mark.parametrize("model", MODELS)
def test_what_was_kept_goes_on_bit_for_bit(model: dict[str, Any], tmp_path: Path) -> None:
    begun = prepared(job(**model), tmp_path)
    paths = keep_job(begun, tmp_path, tmp_path)
    (plan,), (again,) = begun.models, prepare_again(paths).models
    through, first, second = prepare(plan), prepare(plan), prepare(again)
    steps_alone(through, STEPS)
    steps_alone(first, 5)
    load_state(second, save_state(first))
    steps_alone(second, STEPS - 5)
    assert rates(second) == rates(through)
    for one, other in zip(second.model.parameters, through.model.parameters, strict=True):
        assert torch.equal(one, other)
    assert save_state(second).progress == save_state(through).progress


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "gm_steps.py").write_text(
        "import torch\n"
        "def halving(step):\n    return 0.5 ** step\n"
        "def careful(parameters, lr):\n    return torch.optim.SGD(parameters, lr=lr / 10)\n"
    )
    yield tmp_path
    sys.modules.pop("gm_steps", None)
    if str(tmp_path.resolve()) in sys.path:
        sys.path.remove(str(tmp_path.resolve()))


def test_functions_of_a_job_file_are_kept_as_well(beside: Path) -> None:
    described = job(
        optimizer=("gm_steps:careful", {"lr": 1.0}), scheduler=("LambdaLR", {"lr_lambda": "gm_steps:halving"})
    )
    begun = prepared(described, beside)
    paths = keep_job(begun, beside / "home", beside)
    sys.path.remove(str(beside.resolve()))
    del sys.modules["gm_steps"]
    (beside / "gm_steps.py").unlink()
    (plan,) = prepare_again(paths).models
    made = prepare(plan)
    steps_alone(made, 3)
    assert rates(made) == [0.1 / 8]


def test_a_warm_up_ends_with_the_jobs_own_steps(tmp_path: Path) -> None:
    (plan,) = prepared(job(scheduler=("WarmupCosine", {"warmup_steps": 2})), tmp_path).models
    assert plan.scheduler_args == {"warmup_steps": 2, "total_steps": STEPS}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": ("AdamW", {"groups": [{"names": ["*.bia"], "lr": 1.0}]})},
            r"groups.0 \(\*.bia\) fits no",
        ),
        ({"optimizer": ("AdamW", {"groups": [{"names": ["*"]}]})}, "sets no option of the optimizer"),
        ({"optimizer": ("AdamW", {"groups": [{"lr": 1.0}]})}, "needs names or layers"),
        ({"optimizer": ("SparseAdam", {})}, "optimizer SparseAdam cannot do step 0: RuntimeError"),
        ({"optimizer": ("SGD", {"lr": lambda: 1})}, "bind it by functools.partial"),
        ({"optimizer": "gm_nowhere:make"}, "there is no module 'gm_nowhere'"),
        ({"scheduler": ("LambdaLR", {"lr_lambda": "math:no"})}, "math has no 'no'"),
        ({"scheduler": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 5})}, "scheduler OneCycleLR cannot do step"),
        ({"ema": 1.0}, "models.0.ema: must be less than 1"),
    ],
)
def test_what_cannot_step_is_refused_before_any_worker(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        prepared(job(**changes), tmp_path)
    assert "\n" not in str(caught.value)


def test_gradients_are_clipped_in_one_way(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="clip_norm and clip_value do not go together"):
        prepared(replace(job(), clip_norm=1.0, clip_value=1.0), tmp_path)


def test_state_that_no_checkpoint_can_hold_is_refused(tmp_path: Path) -> None:
    class Odd(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.state[self.param_groups[0]["params"][0]]["when"] = object()

    with pytest.raises(ConfigError, match=r"no checkpoint can hold how it is stepped: StateError: state\.optimizer"):
        prepared(job(optimizer=(Odd, {"lr": 1.0})), tmp_path)


def test_checkpoints_of_earlier_versions_are_read() -> None:
    import io

    from gradmux.orchestrator.training.models import ModelPlan

    plan = ModelPlan("net", make_net, optimizer="Adam", scheduler="StepLR", scheduler_args={"step_size": 2})
    old, new = prepare(plan), prepare(plan)
    steps_alone(old, 3)
    buffer = io.BytesIO()
    assert old.stepper.scheduler is not None
    torch.save(
        {
            "kinds": "Adam with StepLR",
            "optimizer": old.stepper.optimizer.state_dict(),
            "scheduler": old.stepper.scheduler.state_dict(),
        },
        buffer,
    )
    load_state(new, replace(save_state(old), progress=buffer.getvalue()))
    assert save_state(new) == save_state(old)
