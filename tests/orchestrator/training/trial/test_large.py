"""Large models are tried without a second copy in memory, and what is found is what is found of small ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.gradient import Batch, coded_sum, spread_sum
from gradmux.lambda_worker.partials import each_partial
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.models import ModelPlan, prepare
from gradmux.orchestrator.training.trial import playing
from gradmux.orchestrator.training.trial.outcome import Outcome, find_outcome
from gradmux.orchestrator.training.trial.playing import RowsOf, play
from gradmux.orchestrator.training.trial.sketch import BUCKETS, sketch
from gradmux.orchestrator.training.trial.waiting import on_disk
from gradmux.orchestrator.training.trying import rehearse, try_evaluation, try_training
from tests.orchestrator.training.bench import make_dataset
from tests.orchestrator.training.trial import models


class Odd(nn.Module):
    """Its parameters are tied, sparse, frozen, changed by a hook of the user's, or without part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle, self.frozen = nn.Linear(6, 6), nn.Linear(2, 2), nn.Linear(6, 6)
        self.table = nn.Embedding(7, 6, sparse=True)
        self.frozen.weight.requires_grad_(False)
        self.first.weight.register_hook(lambda part: part * 2)

    def forward(self, x: Tensor) -> Tensor:
        tied = self.first(x) @ self.first.weight
        return (self.frozen(tied) + self.table((x[:, 0] > 0).long()))[:, :3]


def odd() -> nn.Module:
    return Odd()


def test_parts_of_a_gradient_are_those_of_the_whole_to_the_last_bit() -> None:
    trained = prepare(ModelPlan("net", odd, pass_rows=32))
    model, rows = trained.model, RowsOf(make_dataset(40), torch.float32)
    parameters = [each for each in model.parameters if each.requires_grad]
    inputs, target = rows.read(range(20))

    def loss() -> Tensor:
        return model.loss.summed(model.module(inputs), target).total

    whole = torch.autograd.grad(loss(), parameters, allow_unused=True)
    parts: dict[int, Tensor] = {}
    each_partial(loss(), parameters, lambda index, part: parts.update({index: part.clone()}))
    assert set(parts) == {index for index, each in enumerate(whole) if each is not None}
    assert all(torch.equal(part, whole[index].to_dense()) for index, part in parts.items())
    assert all(each.grad is None for each in parameters), "nothing is left behind"


@pytest.mark.parametrize("most", [1, 7, 50, 10_000])
def test_a_spread_sum_is_the_coded_sum_with_every_so_manieth_element(most: int) -> None:
    model = prepare(ModelPlan("net", odd, pass_rows=32)).model
    model.hold()
    batch = Batch(*RowsOf(make_dataset(40), torch.float32).read(range(20)))
    whole, spread = coded_sum(model, [batch]), spread_sum(model, batch, most)
    step = max(1, -(-whole.gradient.numel() // most))
    assert torch.equal(spread.gradient, whole.gradient[::step])
    assert torch.equal(spread.sums, whole.sums)


@pytest.mark.parametrize("elements", [3, BUCKETS, BUCKETS + 1, 16 * BUCKETS, 40 * BUCKETS + 77])
def test_a_sketch_is_linear_and_has_about_the_norm(elements: int) -> None:
    generator = torch.Generator().manual_seed(elements)
    one, other = (torch.randn(elements, generator=generator, dtype=torch.float64) for _ in range(2))
    total = sketch(one) + sketch(other)
    assert torch.allclose(sketch(one + other), total, rtol=0, atol=1e-12 * float(total.norm()))
    assert float(sketch(one).norm()) == pytest.approx(float(one.norm()), rel=0.1)


@pytest.mark.parametrize("place", [0, BUCKETS - 1, BUCKETS, 17 * BUCKETS + 5, 40 * BUCKETS + 76])
def test_a_sketch_loses_no_single_element(place: int) -> None:
    lone = torch.zeros(40 * BUCKETS + 77)
    lone[place] = 3.0
    assert float(sketch(lone).norm()) == 3.0


def test_what_waits_on_disk_comes_back_to_the_last_bit() -> None:
    tensors = [
        torch.tensor([1.0, float("nan"), -0.0, float("inf")]),
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(5, dtype=torch.float64),
        torch.empty(0),
        torch.tensor(2.5),
    ]
    before = [each.clone() for each in tensors]
    with on_disk(tensors):
        for each in tensors:
            each.fill_(7.0)
    assert all(flat.to_bytes(each) == flat.to_bytes(was) for each, was in zip(tensors, before, strict=True))


def found(factory: Any) -> tuple[Outcome | str, dict[str, Tensor]]:
    trained = prepare(ModelPlan("net", factory, norms="batch", pass_rows=32))
    try:
        outcome = find_outcome(trained.model, RowsOf(make_dataset(200), torch.float32), "net", 32)
    except ConfigError as error:
        return str(error), {}
    return outcome, trained.module.state_dict()


@pytest.mark.parametrize(
    "factory",
    [models.Plain, models.Noting, models.normed, models.Centred, models.HiddenCentre, models.Capacity, odd],
)
def test_large_models_are_found_to_be_what_small_ones_are(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small, before = found(factory)
    monkeypatch.setattr(playing, "LARGE_BYTES", 0)
    large, after = found(factory)
    if isinstance(small, str) or isinstance(large, str):
        assert small == large
        return
    assert (large.draws, large.buffers, large.fixed) == (small.draws, small.buffers, small.fixed)
    assert (large.mixing and large.mixing.where) == (small.mixing and small.mixing.where)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], each) for name, each in before.items()), "the model is as it was"


class WideCentre(nn.Module):
    """Mixes rows behind a layer of more parameters than a sketch has buckets."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.wide, self.head, self.mixes = nn.Linear(6, 2 * BUCKETS // 3), nn.Linear(2 * BUCKETS // 3, 3), mixes

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.wide(x).relu()
        return self.head(hidden - hidden.mean(0) if self.mixes else hidden)  # type: ignore[no-any-return]


@pytest.mark.parametrize("mixes", [True, False])
def test_rows_that_interact_show_in_sketches(mixes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LARGE_BYTES", 0)
    trained = prepare(ModelPlan("net", WideCentre, {"mixes": mixes}, pass_rows=32))
    rows = RowsOf(make_dataset(200), torch.float32)
    assert all(each.numel() <= BUCKETS for each in play(trained.model, rows.read(range(4))).gradient)
    assert find_outcome(trained.model, rows, "net", 32).fixed == mixes


class Limited(nn.Module):
    """Its embedding shortens the vectors that it looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(4, 6, max_norm=0.1), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table((x[:, 0] > 0).long()))  # type: ignore[no-any-return]


@pytest.mark.parametrize("tried", [try_training, try_evaluation])
def test_a_forward_that_changes_weights_is_refused_at_once(tried: Any) -> None:
    trained = prepare(ModelPlan("net", Limited))
    with pytest.raises(ConfigError, match=r"its forward changes parameter table\.weight") as refusal:
        tried(trained, make_dataset(40))
    assert "\n" not in str(refusal.value)


def test_a_snapshot_on_disk_is_the_snapshot(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module.register_buffer("steps", torch.tensor([1, 2**40]))
    path = tmp_path / "snapshot"
    path.write_bytes(b"".join(flat.to_view(each.reshape(-1)) for each in flat.pieces(module)))
    assert torch.equal(flat.from_file(str(path), "float32").view(torch.int32), flat.snapshot(module).view(torch.int32))


class WritesGradients(torch.optim.SGD):
    """Halves gradients in place before it steps."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(0.5)
        return super().step(closure)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, WritesGradients])
def test_any_optimizer_is_rehearsed_with_a_large_model(optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LARGE_BYTES", 0)
    trained = prepare(ModelPlan("net", models.Plain, optimizer=optimizer, optimizer_args={"lr": 0.1}))
    before = flat.snapshot(trained.module)
    rehearse(trained, 1)
    assert not torch.equal(flat.snapshot(trained.module), before), "a step was made"


def test_what_an_optimizer_refuses_is_told_of_a_large_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LARGE_BYTES", 0)

    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise RuntimeError("no step today")

    trained = prepare(ModelPlan("net", models.Plain, optimizer=Failing, optimizer_args={"lr": 0.1}))
    with pytest.raises(ConfigError, match="cannot do step 0: RuntimeError: no step today"):
        rehearse(trained, 1)
