"""Passes: the same sums whichever worker computes them, each from the step's buffers, with its own random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.buffers import FIXED_SUMS
from gradmux.lambda_worker.gradient import Batch, CodedSum, coded_sum, mixed
from gradmux.lambda_worker.losses import loss_from
from gradmux.lambda_worker.models import Model, ModelError
from gradmux.lambda_worker.norms import Rule, update_running_statistics
from gradmux.lambda_worker.order import BatchOrder
from gradmux.lambda_worker.randomness import torch_random

ROWS, PASSES = 22, 5
ORDER = BatchOrder(30, ROWS, seed=3)


class Drawing(nn.Module):
    """Draws from all three global generators."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(F.dropout(x)) * float(np.random.rand()) + random.random()


class Keeping(nn.Module):
    """Changes buffers of many types in its forward, and reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.register_buffer("counter", torch.tensor(2**40))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("narrow", torch.ones(2, dtype=torch.bfloat16))
        self.register_buffer("turn", torch.ones(3, dtype=torch.complex64), persistent=False)
        self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        self.counter += x.shape[0]
        self.mean.lerp_(x.detach().mean(0), 0.5)
        self.narrow.mul_(1.5)
        self.turn *= 1j
        return self.linear(x - self.mean) + self.turn.real + self.narrow.sum()


class Frozen(nn.Module):
    """Keeps its first norm in evaluation mode, as fine-tuning does."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.body[1].eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def model(make: Callable[[], nn.Module], norms: Rule = "batch", dtype: str = "float64") -> Model:
    with torch_random(5):
        module = make()
    made = Model(module, loss_from("cross_entropy", "cross_entropy"), dtype, fixed=True, norms=norms)
    made.load(flat.snapshot(made.module))
    return made


def rows(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return torch.randn(30, 6, generator=drawn).to(dtype), torch.randint(0, 3, (30,), generator=drawn)


def batch_of(number: int, coefficient: float = 1.0, dtype: torch.dtype = torch.float64) -> Batch:
    """One pass of step 0."""
    x, y = rows(dtype)
    chosen = torch.from_numpy(ORDER.rows_of(0, PASSES, number, number + 1).astype(np.int64))
    return Batch((x[chosen],), y[chosen], coefficient, seed=number)


def added(parts: Sequence[CodedSum]) -> tuple[Tensor, Tensor, Tensor]:
    buffers = [part.buffers for part in parts if part.buffers.numel()]
    return sum(p.gradient for p in parts), sum(p.sums for p in parts), sum(buffers, torch.zeros(()))  # type: ignore[return-value]


@pytest.mark.parametrize("make", [normed, Drawing, Keeping, Frozen])
@settings(max_examples=15, deadline=None)
@given(cuts=st.sets(st.integers(1, PASSES - 1)), order=st.randoms(use_true_random=False))
def test_however_passes_are_shared_out_their_sums_are_the_same(
    make: Callable[[], nn.Module], cuts: set[int], order: random.Random
) -> None:
    edges = [0, *sorted(cuts), PASSES]
    shares = [list(range(lo, hi)) for lo, hi in pairwise(edges)]
    order.shuffle(shares)
    made = model(make)
    whole = coded_sum(made, [batch_of(number) for number in range(PASSES)], seed=9)
    gradient, sums, buffers = added([coded_sum(made, [batch_of(n) for n in share], seed=9) for share in shares])
    torch.testing.assert_close(gradient, whole.gradient, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(sums, whole.sums, rtol=1e-12, atol=1e-12)
    assert torch.equal(buffers, whole.buffers) if whole.buffers.numel() else not buffers.any()


def test_each_pass_is_normalised_as_torch_does_and_the_batch_updates_what_runs() -> None:
    ours = coded_sum(made := model(normed), [batch_of(number) for number in range(PASSES)])
    plain = model(normed).module.train()
    for number in range(PASSES):
        part = batch_of(number)
        F.cross_entropy(plain(*part.inputs), part.target, reduction="sum").backward()
    expected = flat.flatten(parameter.grad for parameter in plain.parameters() if parameter.grad is not None)
    torch.testing.assert_close(ours.gradient, expected, rtol=1e-12, atol=1e-12)
    made.reset_buffers()
    update_running_statistics(made.norms, ours.sums[FIXED_SUMS:])
    x = made.module[0](torch.cat([batch_of(number).inputs[0] for number in range(PASSES)])).detach()
    norm = made.module[1]
    torch.testing.assert_close(norm.running_mean, 0.1 * x.mean(0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * x.var(0), rtol=1e-10, atol=1e-12)
    assert int(norm.num_batches_tracked) == 1, "one update a step"


def test_random_numbers_are_those_of_the_pass_and_leave_no_trace() -> None:
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    made = model(Drawing)
    one, again, other = (coded_sum(made, [batch_of(2)], seed=seed).gradient for seed in (4, 4, 5))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert (torch.rand(1), np.random.rand(), random.random()) == expected
    module = model(Drawing).module
    with torch_random(mixed(4, 2)):
        F.cross_entropy(module(*batch_of(2).inputs), batch_of(2).target, reduction="sum").backward()
    plain = flat.flatten(parameter.grad for parameter in module.parameters() if parameter.grad is not None)
    assert torch.equal(one, plain), "what a plain loop draws under the same seed"


@pytest.mark.parametrize("weight", [1.0, -0.37])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_buffers_after_the_first_pass_come_back(weight: float, dtype: str) -> None:
    """Times a coefficient and a decode weight, as a code has them: to the last bit of a float64, and else exactly."""
    made, plain, client = (model(Keeping, dtype=dtype) for _ in range(3))
    kind = flat.DTYPES[dtype]
    plain.module(*batch_of(0, dtype=kind).inputs)
    coded = coded_sum(made, [batch_of(0, weight, kind), batch_of(1, weight, kind)])
    assert not coded_sum(made, [batch_of(1, weight, kind)]).buffers.numel(), "zeros, which do not travel"
    assert client.set_buffers(coded.buffers * 1.7)
    for name, buffer in client.module.named_buffers():
        expected, last_bit = dict(plain.module.named_buffers())[name], 4e-16 if dtype == "float64" else 0.0
        torch.testing.assert_close(buffer, expected, rtol=last_bit, atol=0.0)
        assert buffer.dtype == dict(Keeping().named_buffers())[name].dtype or buffer.dtype == kind
    assert int(client.module.counter) == 2**40 + len(batch_of(0).target)
    carried = model(Keeping, dtype=dtype)
    carried.load(flat.snapshot(client.module))
    for name, buffer in carried.module.named_buffers():
        assert torch.equal(buffer, dict(client.module.named_buffers())[name]), f"{name} travels in a snapshot"


def test_without_the_first_pass_buffers_stay_as_they_were() -> None:
    made = model(Keeping)
    before = [buffer.clone() for buffer in made.module.buffers()]
    assert not made.set_buffers(torch.zeros(0, dtype=torch.float64))
    assert not made.set_buffers(torch.zeros(40, dtype=torch.float64))
    assert all(torch.equal(one, other) for one, other in zip(before, made.module.buffers(), strict=True))


def test_a_counter_that_float64_cannot_carry_is_refused() -> None:
    made = model(Keeping)
    made.module.counter.fill_(2**53)
    with pytest.raises(OverflowError, match=r"a buffer of torch\.int64"):
        flat.snapshot(made.module)


@pytest.mark.parametrize("norms", ["batch", "running"])
def test_a_layer_in_evaluation_mode_stays_so_and_is_not_updated(norms: Rule) -> None:
    made = model(Frozen, norms)
    first, second = made.module.body[1], made.module.body[3]
    assert made.norms == [second]
    assert (first.training, second.training) == (False, norms == "batch")
    coded = coded_sum(made, [batch_of(number) for number in range(PASSES)])
    made.reset_buffers()
    update_running_statistics(made.norms, coded.sums[FIXED_SUMS:])
    assert not first.running_mean.any()
    assert second.running_mean.any()


def test_types_that_are_not_the_models_stay() -> None:
    kept = {name: buffer.dtype for name, buffer in model(Keeping, dtype="float64").module.named_buffers()}
    assert (kept["narrow"], kept["turn"], kept["counter"]) == (torch.bfloat16, torch.complex64, torch.int64)
    assert kept["mean"] is torch.float64


def test_a_task_without_passes_runs_no_forward() -> None:
    class Never(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("there is nothing to compute")

    nothing = coded_sum(model(lambda: Never(6, 3)), [])
    assert not nothing.gradient.any()
    assert not nothing.sums.any()
    assert nothing.gradient.numel() == 21


def test_batch_statistics_need_fixed_passes() -> None:
    with pytest.raises(ModelError, match='norms = "batch" needs fixed passes'):
        Model(normed(), loss_from("cross_entropy", "cross_entropy"), norms="batch")
