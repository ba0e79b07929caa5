"""Coded sums against plain autograd, and bit for bit against each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.buffers import FIXED_SUMS, SumIndex
from gradmux.lambda_worker.gradient import Batch, CodedSum, coded_sum, mixed, squared_distance
from gradmux.lambda_worker.models import Model, ModelError, build
from gradmux.lambda_worker.norms import NormError, update_running_statistics
from tests.lambda_worker.workbench import initial, spec

SAMPLES = 24


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def model(factory: str = "mlp", dtype: str = "float64", **fields: object) -> Model:
    made = build(spec(factory, dtype=dtype, **fields))
    made.load(initial(factory, dtype=dtype, **fields))
    return made


def batches(
    edges: Sequence[int], dtype: torch.dtype = torch.float64, coefficients: Sequence[float] = ()
) -> list[Batch]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(3, (SAMPLES,), generator=generator)
    factors = coefficients or [1.0] * (len(edges) - 1)
    return [
        Batch((x[lo:hi].clone(),), y[lo:hi].clone(), factor, seed=lo)
        for lo, hi, factor in zip(edges, edges[1:], factors, strict=False)
    ]


def combined(parts: Sequence[CodedSum], coefficients: Sequence[float]) -> CodedSum:
    gradient = sum((c * part.gradient.double() for c, part in zip(coefficients, parts, strict=True)), torch.zeros(()))
    sums = sum((c * part.sums for c, part in zip(coefficients, parts, strict=True)), torch.zeros(()))
    return CodedSum(gradient, sums)


def relative(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


@pytest.mark.parametrize("factory", ["mlp", "non_contiguous", "partly_frozen"])
def test_sums_of_chunks_are_autograd_over_the_whole_batch(factory: str) -> None:
    ours = coded_sum(model(factory), batches([0, 5, 6, 20, SAMPLES]))
    reference = model(factory).module
    (whole,) = batches([0, SAMPLES])
    loss = F.cross_entropy(reference(*whole.inputs), whole.target, reduction="sum")
    loss.backward()
    expected = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in reference.parameters()]
    )
    assert relative(ours.gradient, expected) < 1e-12
    assert ours.sums[SumIndex.LOSS] == pytest.approx(loss.item(), rel=1e-12)
    hits = int((reference(*whole.inputs).argmax(1) == whole.target).sum())
    assert ours.sums[1:].tolist() == [SAMPLES, hits, SAMPLES, SAMPLES]


def test_tied_weights_count_once_and_get_both_gradients() -> None:
    tied = model("tied", loss="mse_loss")
    x = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours = coded_sum(tied, [Batch((x,), x)])
    weight = initial("tied", dtype="float64").reshape(3, 6).requires_grad_(True)
    F.mse_loss(x @ weight.t() @ weight, x, reduction="sum").backward()
    assert weight.grad is not None
    assert ours.gradient.numel() == weight.numel()
    assert relative(ours.gradient, weight.grad.reshape(-1)) < 1e-12
    assert ours.sums[SumIndex.PREDICTIONS] == 0


@pytest.mark.parametrize("loss", ["cross_entropy", "summed", "per_sample"])
def test_coefficients_weigh_chunks_whichever_way_it_is_computed(loss: str) -> None:
    coefficients = [0.5, -2.0, 3.25]
    ours = coded_sum(model(loss=loss), batches([0, 7, 8, 20], coefficients=coefficients))
    parts = [coded_sum(model(loss=loss), [batch]) for batch in batches([0, 7, 8, 20])]
    expected = combined(parts, coefficients)
    assert relative(ours.gradient, expected.gradient) < 1e-12
    assert relative(ours.sums, expected.sums) < 1e-12


def test_a_chunk_has_the_same_bits_in_every_sandbox_and_company() -> None:
    alone = [coded_sum(model(dtype="float32"), [batch]) for batch in batches([0, 7, 8, 20], torch.float32)]
    together = coded_sum(model(dtype="float32"), batches([0, 7, 8, 20], torch.float32))
    total = torch.zeros_like(together.gradient)
    for part in alone:
        total += part.gradient
    assert torch.equal(together.gradient, total)


def test_a_float64_wire_carries_exact_combinations_of_float32_chunks() -> None:
    """Cyclic codes amplify rounding: two workers' combinations must rest on identical chunk gradients."""
    coefficients = [1.37, -0.61, 2.9]
    ours = coded_sum(model(dtype="float32"), batches([0, 7, 8, 20], torch.float32, coefficients), wire="float64")
    parts = [coded_sum(model(dtype="float32"), [batch]) for batch in batches([0, 7, 8, 20], torch.float32)]
    assert ours.gradient.dtype is torch.float64
    assert relative(ours.gradient, combined(parts, coefficients).gradient) < 1e-15
    at_once = coded_sum(model(dtype="float32"), batches([0, 7, 8, 20], torch.float32, coefficients))
    assert 0 < relative(at_once.gradient, ours.gradient) < 1e-5


def test_dropout_is_the_chunks_own() -> None:
    """The same masks in any company and any sandbox; other masks for another chunk seed or job seed."""
    parts = batches([0, 8, 16])
    alone = [coded_sum(model("with_dropout"), [batch], seed=9) for batch in parts]
    together = coded_sum(model("with_dropout"), parts, seed=9)
    reversed_ = coded_sum(model("with_dropout"), parts[::-1], seed=9)
    assert torch.equal(together.gradient, alone[0].gradient + alone[1].gradient)
    assert torch.equal(reversed_.gradient, alone[1].gradient + alone[0].gradient)
    assert not torch.equal(coded_sum(model("with_dropout"), [parts[0]], seed=10).gradient, alone[0].gradient)
    reseeded = Batch(parts[0].inputs, parts[0].target, seed=99)
    assert not torch.equal(coded_sum(model("with_dropout"), [reseeded], seed=9).gradient, alone[0].gradient)


def test_dropout_with_coefficients_falls_back_to_chunks() -> None:
    coefficients = [2.0, -1.0]
    dropping = model("with_dropout")
    parts = [coded_sum(model("with_dropout"), [batch], seed=1) for batch in batches([0, 8, 16])]
    expected = combined(parts, coefficients)
    for _ in range(2):  # found out the first time, known the second
        ours = coded_sum(dropping, batches([0, 8, 16], coefficients=coefficients), seed=1)
        assert dropping.draws
        assert relative(ours.gradient, expected.gradient) < 1e-12


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    coded_sum(model("with_dropout", loss="per_sample"), batches([0, 8, 16]), seed=1)
    coded_sum(model("with_dropout"), batches([0, 8, 16]), seed=1)
    coded_sum(model("with_dropout", loss="summed"), batches([0, 8, 16], coefficients=[2.0, 1.0]), seed=1)
    assert torch.equal(torch.rand(2), expected)


def test_batch_norm_sums_update_running_statistics_as_torch_does() -> None:
    parts = coded_sum(model("with_norm"), batches([0, 7, 20, SAMPLES], coefficients=[1.0, 1.0, 1.0]))
    (whole,) = batches([0, SAMPLES])
    normal = model("with_norm").module.train()
    normal(*whole.inputs)
    ours = model("with_norm")
    update_running_statistics(ours.norms, parts.sums[FIXED_SUMS:])
    for mine, theirs in zip(ours.module.buffers(), normal.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def test_batch_norm_normalises_with_the_snapshot() -> None:
    flat_start = initial("with_norm", dtype="float64")
    flat_start[-8:] = torch.tensor([0.3, -0.2, 0.1, 0.5, 1.5, 0.7, 2.0, 1.1])  # running means and variances
    normed = model("with_norm")
    normed.load(flat_start)
    ours = coded_sum(normed, batches([0, 9, SAMPLES]))
    reference = build(spec("with_norm", dtype="float64")).module
    flat.load_snapshot(reference, flat_start)
    (whole,) = batches([0, SAMPLES])
    F.cross_entropy(reference.eval()(*whole.inputs), whole.target, reduction="sum").backward()
    assert relative(ours.gradient, flat.flatten(p.grad for p in reference.parameters() if p.grad is not None)) < 1e-12
    assert torch.equal(flat.snapshot(normed.module), flat_start)


def test_cumulative_batch_norm_and_layers_that_did_not_run() -> None:
    ours, normal = (nn.BatchNorm1d(2, momentum=None).double() for _ in range(2))
    for seed in range(3):
        x = torch.randn(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        normal(x)
        update_running_statistics([ours], torch.cat((torch.tensor([10.0]), x.sum(0), x.square().sum(0))))
    assert ours.running_var is not None
    assert normal.running_var is not None
    torch.testing.assert_close(ours.running_var, normal.running_var)
    before = flat.snapshot(ours)
    update_running_statistics([ours], torch.zeros(5, dtype=torch.float64))
    assert torch.equal(flat.snapshot(ours), before)
    with pytest.raises(ValueError, match="4 statistics came"):
        update_running_statistics([ours], torch.zeros(4))


def test_batch_norm_without_running_statistics_is_refused() -> None:
    with pytest.raises(NormError, match="no sum over samples"):
        Model(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)), build(spec()).loss)


def test_what_a_forward_pass_does_to_buffers_does_not_reach_the_next_pass() -> None:
    def drifting() -> Model:
        made = Model(build(spec("drifting", dtype="float64")).module, build(spec()).loss, "float64", fixed=True)
        made.load(initial("drifting", dtype="float64"))
        return made

    parts = batches([0, 8, 16])
    alone = [coded_sum(drifting(), [batch]) for batch in parts]
    together = coded_sum(drifting(), parts)
    assert torch.equal(together.gradient, alone[0].gradient + alone[1].gradient)
    weighted = coded_sum(drifting(), batches([0, 8, 16], coefficients=[1.0, 2.0]))
    assert relative(weighted.gradient, combined(alone, [1.0, 2.0]).gradient) < 1e-12


def test_a_buffer_that_changes_although_no_trial_saw_it_fails_by_name() -> None:
    with pytest.raises(ModelError, match=r"changes buffer drift, .*training\.pass_rows"):
        coded_sum(model("drifting"), batches([0, 8]))


def test_per_position_classification_counts_positions_and_skips_ignored_ones() -> None:
    class PerPosition(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([0.0, 1.0]))

        def forward(self, x: Tensor) -> Tensor:
            return self.bias[None, :, None].expand(x.shape[0], 2, x.shape[1])

    target = torch.tensor([[1, 0, 1], [1, 1, -100]])
    ours = coded_sum(Model(PerPosition(), build(spec()).loss), [Batch((torch.zeros(2, 3),), target)])
    assert ours.sums[1:].tolist() == [2.0, 4.0, 5.0, 5.0]


def test_squared_distance() -> None:
    one, other = (CodedSum(torch.tensor(values), torch.zeros(4)) for values in ([1.0, 2.0], [4.0, -2.0]))
    assert squared_distance(one, other) == 25.0


def test_mixed_seeds_spread_and_fit() -> None:
    seeds = {mixed(a, b) for a in range(20) for b in range(20)}
    assert len(seeds) == 400
    assert max(seeds) < 2**63
