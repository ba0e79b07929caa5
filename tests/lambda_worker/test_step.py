"""A step is what a plain torch loop does, bit for bit: groups, own optimizers, schedules, clipping, average, state."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler, swa_utils

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.buffers import FIXED_SUMS, SumIndex
from gradmux.lambda_worker.losses import loss_from
from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.recipe import Group, Recipe, RecipeError
from gradmux.lambda_worker.schedules import WarmupCosine, with_functions
from gradmux.lambda_worker.state import decode_state, encode_state
from gradmux.lambda_worker.step import StepError, Stepper

STEPS, ROWS = 8, 6


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3, bias=False))


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, 4, generator=generator), torch.randint(3, (ROWS,), generator=generator)


def gradient_of(model: Model, step: int) -> tuple[Tensor, Tensor]:
    """The sums of one batch, as they are decoded."""
    x, y = batch(step)
    loss = model.loss.summed(model.module(x), y)
    sums = torch.zeros(FIXED_SUMS, dtype=torch.float64)
    sums[SumIndex.LOSS], sums[SumIndex.SAMPLES], sums[SumIndex.COUNT] = loss.total.item(), ROWS, loss.count
    return flat.flatten(torch.autograd.grad(loss.total, model.parameters)), sums


def stepper(recipe: Recipe) -> Stepper:
    return Stepper(Model(network(), loss_from("cross_entropy", "cross_entropy")), recipe)


def play(made: Stepper, lo: int, hi: int) -> Tensor:
    for step in range(lo, hi):
        gradient, sums = gradient_of(made.model, step)
        assert not made.step(gradient, sums).diverged
    return flat.snapshot(made.model.module)


def plainly(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    scheduler: Callable[[Any], Any] | None = None,
    clip: Callable[[Any], Any] = lambda parameters: None,
    ema: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The same in torch alone: weights and average."""
    module = network()
    steps = optimizer(module)
    schedule = scheduler(steps) if scheduler else None
    average = None
    if ema is not None:
        average = swa_utils.AveragedModel(module, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(ema))  # type: ignore[no-untyped-call]
    for step in range(STEPS):
        x, y = batch(step)
        total = F.cross_entropy(module(x), y, reduction="none").sum()
        steps.zero_grad()
        total.backward()
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter.grad.div_(ROWS)
        clip(list(module.parameters()))
        steps.step()
        if isinstance(schedule, lr_scheduler.ReduceLROnPlateau):
            schedule.step(total.item() / ROWS)
        elif schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(module)
    return flat.snapshot(module), None if average is None else flat.snapshot(average.module)


def halve(step: int) -> float:
    return 0.5**step


class OwnSGD(torch.optim.SGD):
    """A user's own."""


def own_factory(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    weights = [parameter for name, parameter in model.named_parameters() if name.endswith("weight")]
    return torch.optim.RMSprop(weights, lr=lr)


def needs_closure() -> Any:
    class Closing(torch.optim.SGD):
        def step(self, closure: Any) -> None:  # type: ignore[override]
            closure()

    return Closing


SGD = Recipe(optimizer_args={"lr": 0.5, "momentum": 0.9})


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)


def no_decay(module: nn.Module) -> torch.optim.Optimizer:
    kinds = {True: [], False: []}  # type: ignore[var-annotated]
    for name, parameter in module.named_parameters():
        kinds[name.endswith("bias") or name.startswith("1.")].append(parameter)
    groups = [{"params": kinds[False]}, {"params": kinds[True], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.02, weight_decay=0.3)


GROUPS = (Group(("*.bias",), ("*Norm*",), {"weight_decay": 0.0}),)
ADAMW = Recipe("AdamW", {"lr": 0.02, "weight_decay": 0.3}, GROUPS)
SEQUENTIAL = {
    "schedulers": [
        {"name": "LinearLR", "start_factor": 0.1, "total_iters": 3},
        {"name": "CosineAnnealingLR", "T_max": 5},
    ],
    "milestones": [3],
}


def sequential(optimizer: Any) -> Any:
    parts = [
        lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3),
        lr_scheduler.CosineAnnealingLR(optimizer, T_max=5),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [3])


CASES: dict[str, tuple[Recipe, tuple[Any, ...]]] = {
    "plain": (SGD, (sgd,)),
    "groups": (ADAMW, (no_decay,)),
    "own class": (Recipe(OwnSGD, {"lr": 0.5, "momentum": 0.9}), (sgd,)),
    "own factory of the model": (Recipe(own_factory, {"lr": 0.01}), (lambda module: own_factory(module, 0.01),)),
    "LambdaLR": (
        Recipe("SGD", SGD.optimizer_args, scheduler="LambdaLR", scheduler_args={"lr_lambda": halve}),
        (sgd, lambda o: lr_scheduler.LambdaLR(o, halve)),
    ),
    "SequentialLR": (
        Recipe("SGD", SGD.optimizer_args, scheduler="SequentialLR", scheduler_args=SEQUENTIAL),
        (sgd, sequential),
    ),
    "ChainedScheduler": (
        Recipe(
            scheduler="ChainedScheduler",
            scheduler_args={"schedulers": [{"name": "ConstantLR"}, {"name": "ExponentialLR", "gamma": 0.9}]},
            optimizer_args=SGD.optimizer_args,
        ),
        (
            sgd,
            lambda o: lr_scheduler.ChainedScheduler(
                [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], optimizer=o
            ),
        ),
    ),
    "MultiStepLR": (
        Recipe("SGD", SGD.optimizer_args, scheduler="MultiStepLR", scheduler_args={"milestones": [2, 5, 5]}),
        (sgd, lambda o: lr_scheduler.MultiStepLR(o, [2, 5, 5])),
    ),
    "ReduceLROnPlateau": (
        Recipe("SGD", SGD.optimizer_args, scheduler="ReduceLROnPlateau", scheduler_args={"patience": 0}),
        (sgd, lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0)),
    ),
    "WarmupCosine": (
        Recipe(
            "SGD", SGD.optimizer_args, scheduler="WarmupCosine", scheduler_args={"warmup_steps": 3, "total_steps": 8}
        ),
        (sgd, lambda o: lr_scheduler.LambdaLR(o, WarmupCosine(3, 8))),
    ),
    "clip_norm": (
        Recipe("SGD", SGD.optimizer_args, clip_norm=0.05),
        (sgd, None, lambda p: nn.utils.clip_grad_norm_(p, 0.05)),
    ),
    "clip_value": (
        Recipe("SGD", SGD.optimizer_args, clip_value=0.01),
        (sgd, None, lambda p: nn.utils.clip_grad_value_(p, 0.01)),
    ),
    "ema": (Recipe("SGD", SGD.optimizer_args, ema=0.8), (sgd, None, lambda p: None, 0.8)),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_plain_torch_also_after_a_resume(name: str) -> None:
    recipe, arguments = CASES[name]
    expected, average = plainly(*arguments)
    through, first, second = stepper(recipe), stepper(recipe), stepper(recipe)
    exact = {"rtol": 1e-5, "atol": 1e-7} if name == "clip_norm" else {"rtol": 0, "atol": 0}  # the norm of all at once
    torch.testing.assert_close(play(through, 0, STEPS), expected, **exact)

    weights = play(first, 0, 3)
    second.load_state(decode_state(encode_state(first.state())))
    flat.load_snapshot(second.model.module, weights)
    assert torch.equal(play(second, 3, STEPS), flat.snapshot(through.model.module)), "resumed: bit for bit"

    if average is not None:
        other = network()
        second.average_into(other)
        assert torch.equal(flat.snapshot(other), average)
        assert not torch.equal(average, expected)


def _optimizers() -> list[str]:
    found = [name for name, kind in vars(torch.optim).items() if inspect.isclass(kind) and name != "Optimizer"]
    return sorted(name for name in found if issubclass(getattr(torch.optim, name), torch.optim.Optimizer))


@pytest.mark.parametrize("name", _optimizers())
def test_every_optimizer_of_torch_resumes_bit_for_bit_or_is_refused(name: str) -> None:
    try:
        through, first, second = (stepper(Recipe(name, {"lr": 0.01})) for _ in range(3))
        play(through, 0, 1)
        refused = ""
    except (RecipeError, StepError) as error:
        refused = str(error)
    assert bool(refused) == (name in {"LBFGS", "SparseAdam", "Muon"}), refused
    if refused:
        assert name in refused
        return
    play(through, 1, STEPS)
    weights = play(first, 0, 3)
    second.load_state(decode_state(encode_state(first.state())))
    flat.load_snapshot(second.model.module, weights)
    assert torch.equal(play(second, 3, STEPS), flat.snapshot(through.model.module))


def test_a_diverged_step_is_a_result_and_changes_nothing() -> None:
    made = stepper(SGD)
    play(made, 0, 2)
    before, state = flat.snapshot(made.model.module), encode_state(made.state())
    gradient, sums = gradient_of(made.model, 2)
    none, count, nan = sums.clone(), sums.clone(), sums.clone()
    none[SumIndex.COUNT], nan[SumIndex.LOSS] = 1e-15, float("nan")
    assert "no row of the batch counts" in made.step(gradient.clone(), none).diverged
    assert made.step(gradient.clone(), nan).diverged == "the loss is nan and the gradient's norm is " + (
        f"{float(gradient.div(ROWS).norm()):g}"
    )
    assert "norm is inf" in made.step(gradient * float("inf"), count).diverged.replace("nan", "inf")
    assert torch.equal(before, flat.snapshot(made.model.module))
    assert encode_state(made.state()) == state


def test_the_warm_up_and_the_cosine() -> None:
    factor = WarmupCosine(4, 12, floor=0.1)
    assert [factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert factor(4) == 1.0
    assert factor(8) == pytest.approx(0.55)
    assert factor(12) == factor(99) == pytest.approx(0.1)


def test_functions_by_name_are_found_in_parts_too() -> None:
    args = {"schedulers": [{"name": "LambdaLR", "lr_lambda": "m:f"}, {"name": "m:g"}], "milestones": [3]}
    assert with_functions(args, str.upper) == {
        "schedulers": [{"name": "LambdaLR", "lr_lambda": "M:F"}, {"name": "M:G"}],
        "milestones": [3],
    }


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe("Adamm"), "torch.optim has no optimizer 'Adamm'"),
        (Recipe("LBFGS"), "LBFGS evaluates the loss by itself"),
        (Recipe(needs_closure(), {"lr": 1.0}), "Closing evaluates the loss by itself"),
        (Recipe(lambda parameters: 3), "is int, expected a torch.optim.Optimizer"),
        (
            Recipe(lambda model: torch.optim.SGD([nn.Parameter(torch.ones(1))])),
            "steps other parameters than the model's",
        ),
        (Recipe(lambda model: 1 / 0), "ZeroDivisionError: division by zero"),
        (
            Recipe("SGD", groups=(Group(("*.bais",), args={"lr": 1.0}),)),
            r"groups.0 \(\*.bais\) fits no trained parameter",
        ),
        (Recipe("SGD", groups=(Group(("*",), args={"weigth_decay": 1.0}),)), "did you mean 'weight_decay'"),
        (Recipe(own_factory, {"lr": 1.0}, GROUPS), "leave out groups"),
        (Recipe(scheduler="StepLRR"), "has no scheduler 'StepLRR'"),
        (Recipe(scheduler="WarmupCosine", scheduler_args={"warmup_steps": 9, "total_steps": 9}), "needs 0 <= warmup"),
        (Recipe(scheduler="SequentialLR", scheduler_args={"schedulers": [{"gamma": 1}]}), "schedulers.0 has no name"),
        (Recipe(scheduler=lambda optimizer: None), "is NoneType, expected"),
    ],
)
def test_recipes_that_cannot_be_followed(recipe: Recipe, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        stepper(recipe)
    assert "\n" not in str(caught.value)
