"""Every loss of torch means what torch means, from passes of any size, or is refused in one line."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from gradmux.lambda_worker.losses import LossError, loss_from
from gradmux.lambda_worker.outputs import changed
from gradmux.lambda_worker.structure import loss_of

ROWS = 12


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def classes(*shape: int, count: int = 5) -> Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(3))


def signs(*shape: int) -> Tensor:
    return classes(*shape, count=2).double() * 2 - 1


def some_ignored(target: Tensor, index: int = -100) -> Tensor:
    changed = target.clone()
    changed.view(-1)[::5] = index
    return changed


SCORES, LABELS = normal(ROWS, 5), classes(ROWS)
TOKENS = normal(ROWS, 5, 4), some_ignored(classes(ROWS, 4))
BITS = normal(ROWS, 3), classes(ROWS, 3, count=2).double()
SHARES = (normal(ROWS, 3).sigmoid(), BITS[1])
VALUES = normal(ROWS, 3), normal(ROWS, 3) + 0.3
COUNTS = normal(ROWS, 3), classes(ROWS, 3).double()
LOGS = normal(ROWS, 5).log_softmax(1)
SIGNED = normal(ROWS, 3), signs(ROWS, 3)
MARGINS = normal(ROWS, 5), torch.tensor([[2, 0, -1, -1, -1], [1, -1, -1, -1, -1]]).repeat(ROWS // 2, 1)
WEIGHT = torch.tensor([0.1, 1.0, 1.0, 1.0, 5.0], dtype=torch.float64)
POSITIVE = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
REFUSED: tuple[()] = ()

Rows = tuple[Tensor, Tensor] | tuple[()]

FUNCTIONS: dict[str, Rows] = {
    "binary_cross_entropy": SHARES,
    "binary_cross_entropy_with_logits": BITS,
    "cosine_embedding_loss": REFUSED,
    "cross_entropy": (SCORES, LABELS),
    "ctc_loss": REFUSED,
    "gaussian_nll_loss": REFUSED,
    "hinge_embedding_loss": SIGNED,
    "huber_loss": VALUES,
    "kl_div": (LOGS, normal(ROWS, 5).softmax(1)),
    "l1_loss": VALUES,
    "linear_cross_entropy": REFUSED,
    "margin_ranking_loss": REFUSED,
    "mse_loss": VALUES,
    "multi_margin_loss": (SCORES, LABELS),
    "multilabel_margin_loss": MARGINS,
    "multilabel_soft_margin_loss": BITS,
    "nll_loss": (LOGS, some_ignored(LABELS)),
    "poisson_nll_loss": COUNTS,
    "smooth_l1_loss": VALUES,
    "soft_margin_loss": SIGNED,
    "triplet_margin_loss": REFUSED,
    "triplet_margin_with_distance_loss": REFUSED,
}
"""name -> rows that it takes; REFUSED: it takes more than outputs and targets"""

MODULES: dict[str, Sequence[tuple[Callable[..., nn.Module], Rows]]] = {
    "AdaptiveLogSoftmaxWithLoss": [(lambda: nn.AdaptiveLogSoftmaxWithLoss(5, 5, [2]), REFUSED)],
    "BCELoss": [(nn.BCELoss, SHARES), (lambda: nn.BCELoss(weight=POSITIVE), SHARES)],
    "BCEWithLogitsLoss": [
        (nn.BCEWithLogitsLoss, BITS),
        (lambda: nn.BCEWithLogitsLoss(pos_weight=POSITIVE), BITS),
        (lambda: nn.BCEWithLogitsLoss(weight=POSITIVE), BITS),
    ],
    "CTCLoss": [(nn.CTCLoss, REFUSED)],
    "CosineEmbeddingLoss": [(nn.CosineEmbeddingLoss, REFUSED)],
    "CrossEntropyLoss": [
        (nn.CrossEntropyLoss, (SCORES, LABELS)),
        (nn.CrossEntropyLoss, TOKENS),
        (lambda: nn.CrossEntropyLoss(weight=WEIGHT), (SCORES, LABELS)),
        (lambda: nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.2), (SCORES, some_ignored(LABELS))),
        (lambda: nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=2), (TOKENS[0], classes(ROWS, 4))),
        (lambda: nn.CrossEntropyLoss(ignore_index=-1, label_smoothing=0.1), (TOKENS[0], some_ignored(TOKENS[1], -1))),
        (nn.CrossEntropyLoss, (SCORES, normal(ROWS, 5).softmax(1))),
        (lambda: nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1), (TOKENS[0], normal(ROWS, 5, 4).softmax(1))),
    ],
    "GaussianNLLLoss": [(nn.GaussianNLLLoss, REFUSED)],
    "HingeEmbeddingLoss": [(nn.HingeEmbeddingLoss, SIGNED)],
    "HuberLoss": [(lambda: nn.HuberLoss(delta=0.5), VALUES)],
    "KLDivLoss": [
        (nn.KLDivLoss, (LOGS, normal(ROWS, 5).softmax(1))),
        (lambda: nn.KLDivLoss(reduction="batchmean"), (LOGS, normal(ROWS, 5).softmax(1))),
        (lambda: nn.KLDivLoss(reduction="batchmean", log_target=True), (LOGS, normal(5, ROWS).T.log_softmax(1))),
    ],
    "L1Loss": [(nn.L1Loss, VALUES)],
    "LinearCrossEntropyLoss": [(lambda: nn.LinearCrossEntropyLoss(5, 5), REFUSED)],
    "MSELoss": [(nn.MSELoss, VALUES), (nn.MSELoss, (normal(ROWS, 2, 3, 4), normal(ROWS, 2, 3, 4) ** 2))],
    "MarginRankingLoss": [(nn.MarginRankingLoss, REFUSED)],
    "MultiLabelMarginLoss": [(nn.MultiLabelMarginLoss, MARGINS)],
    "MultiLabelSoftMarginLoss": [
        (nn.MultiLabelSoftMarginLoss, BITS),
        (lambda: nn.MultiLabelSoftMarginLoss(weight=POSITIVE), BITS),
    ],
    "MultiMarginLoss": [(lambda: nn.MultiMarginLoss(p=2, margin=0.5, weight=WEIGHT), (SCORES, LABELS))],
    "NLLLoss": [(lambda: nn.NLLLoss(weight=WEIGHT), (LOGS, some_ignored(LABELS)))],
    "PoissonNLLLoss": [(lambda: nn.PoissonNLLLoss(full=True), COUNTS)],
    "SmoothL1Loss": [(lambda: nn.SmoothL1Loss(beta=0.3), VALUES)],
    "SoftMarginLoss": [(nn.SoftMarginLoss, SIGNED)],
    "TripletMarginLoss": [(nn.TripletMarginLoss, REFUSED)],
    "TripletMarginWithDistanceLoss": [(nn.TripletMarginWithDistanceLoss, REFUSED)],
}


def test_no_loss_of_this_torch_is_left_out() -> None:
    functions = {
        name
        for name in dir(F)
        if not name.startswith("_") and callable(getattr(F, name)) and _has_reduction(getattr(F, name))
    }
    assert functions == FUNCTIONS.keys()
    assert {name for name in dir(nn) if name.endswith("Loss")} == MODULES.keys()


def _has_reduction(function: Any) -> bool:
    try:
        return "reduction" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_torch_by_name_by_object_and_in_a_partial(name: str) -> None:
    rows, function = FUNCTIONS[name], getattr(F, name)
    for source in (name, function, functools.partial(function)):
        assert_as_torch(source, function, rows)


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize(("make", "rows"), [case for cases in MODULES.values() for case in cases])
def test_loss_modules_of_torch(make: Callable[..., nn.Module], rows: Rows) -> None:
    assert_as_torch(make(), make(), rows)


def assert_as_torch(source: Any, mean: Callable[..., Tensor], rows: Rows) -> None:
    """Its sum over its count, from passes, is torch's mean, and so is the gradient; what is refused is told why."""
    if not rows:
        with pytest.raises(LossError, match=r"takes .* an output and 1|parameters of its own|not known here"):
            loss_from(source, "loss").check(SCORES, LABELS)
        return
    output, target = rows
    expected_output = output.clone().requires_grad_(True)
    expected = mean(expected_output, target)
    expected.backward()
    for cuts in ([ROWS], [5, 1, 4, 2], [1] * ROWS):
        loss = loss_from(source, "loss")
        loss.check(output, target)
        ours = output.clone().requires_grad_(True)
        parts = [loss.summed(o, t) for o, t in zip(ours.split(cuts), target.split(cuts), strict=True)]
        count = sum(part.count for part in parts)
        (sum(part.total for part in parts) / count).backward()  # type: ignore[union-attr]
        assert ours.grad is not None
        assert float(sum(part.total.detach() for part in parts)) / count == pytest.approx(expected.item(), rel=1e-12)
        torch.testing.assert_close(ours.grad, expected_output.grad, rtol=1e-10, atol=1e-14)
        by_row = loss.by_row(output, target)
        assert by_row is not None, "torch's own losses have values by row"
        assert float(by_row.counts.sum()) == pytest.approx(count, rel=1e-12)
        assert float(by_row.values.sum()) == pytest.approx(expected.item() * count, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_random_cross_entropies_from_random_passes(data: st.DataObject) -> None:
    weight = data.draw(st.none() | st.lists(st.floats(0.0, 4.0), min_size=5, max_size=5).map(torch.tensor))
    ignore = data.draw(st.sampled_from([-100, 0, 3]))
    smoothing = data.draw(st.sampled_from([0.0, 0.3]))
    target = torch.tensor(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, ignore]), min_size=8, max_size=8)))
    cut = data.draw(st.integers(1, 7))
    module = nn.CrossEntropyLoss(weight, ignore_index=ignore, label_smoothing=smoothing)
    output, loss = normal(8, 5).float(), loss_from(module, "loss")
    parts = [loss.summed(output[:cut], target[:cut]), loss.summed(output[cut:], target[cut:])]
    count = sum(part.count for part in parts)
    expected = float(module(output, target))
    if count:
        assert float(sum(part.total for part in parts)) / count == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert expected != expected, "torch has 0 / 0"


@pytest.mark.parametrize(
    ("source", "output", "target"),
    [
        ("gaussian_nll_loss", VALUES[0], (VALUES[1], VALUES[0].exp())),
        (nn.GaussianNLLLoss(full=True), VALUES[0], {"target": VALUES[1], "var": VALUES[0].exp()}),
        ("cosine_embedding_loss", VALUES[0], (VALUES[1], signs(ROWS))),
        (nn.MarginRankingLoss(0.1), VALUES[0][:, 0], (VALUES[1][:, 0], signs(ROWS))),
        ("triplet_margin_loss", VALUES[0], (VALUES[1], VALUES[0].exp())),
        ("triplet_margin_with_distance_loss", VALUES[0], {"positive": VALUES[1], "negative": VALUES[0].exp()}),
    ],
)
def test_losses_of_several_targets(source: Any, output: Tensor, target: Any) -> None:
    loss = loss_from(source, "loss")
    loss.check(output, target)
    part = loss.summed(output, target)
    mean = loss_of(getattr(F, source) if isinstance(source, str) else source, output, target)
    assert float(part.total) / part.count == pytest.approx(float(mean), rel=1e-12)


def test_a_pass_of_count_zero_is_ordinary() -> None:
    loss = loss_from(nn.CrossEntropyLoss(), "loss")
    output = SCORES.clone().requires_grad_(True)
    part = loss.summed(output, torch.full((ROWS,), -100))
    part.total.backward()
    assert (part.total.item(), part.count) == (0.0, 0.0)
    assert output.grad is not None
    assert not output.grad.any()


def test_the_users_loss_module_is_left_as_it_was() -> None:
    module = nn.CrossEntropyLoss(weight=WEIGHT.float())
    loss = loss_from(module, "loss").to(torch.float64)
    assert loss.summed(SCORES, LABELS).total.dtype is torch.float64
    assert (module.reduction, module.weight.dtype) == ("mean", torch.float32)


# --- the user's own ----------------------------------------------------------------------------------------------


class Focal(nn.Module):
    """As libraries write them: with a `reduction` of its own."""

    def __init__(self, reduction: str = "mean", divide: bool = False) -> None:
        super().__init__()
        self.reduction, self.divide = reduction, divide

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        each = F.cross_entropy(output, target, reduction="none")
        each = (1 - (-each).exp()) ** 2 * each
        if self.reduction == "none":
            return each
        return each.sum() / (target + 1).sum() if self.divide else each.mean()


class Smoothed(nn.CrossEntropyLoss):
    """A subclass that divides in its own way whatever `reduction` says."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, reduction="none").mean() * 2


class Centres(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.centres, self.reduction = nn.Parameter(torch.zeros(5, 5)), "none"

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return ((output - self.centres[target]) ** 2).sum(1)


def per_row(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (per_row, ROWS),
        (lambda o, t: per_row(o, t)[:, None], ROWS),
        (lambda o, t: per_row(o, t).sum(), ROWS),
        (lambda o, t: (per_row(o, t).sum(), 2 * len(t)), 2 * ROWS),
        (lambda o, t: [per_row(o, t).sum(), (t > 1).sum()], int((LABELS > 1).sum())),
        (nn.CrossEntropyLoss(reduction="none"), ROWS),
        (functools.partial(F.cross_entropy, reduction="none"), ROWS),
        (nn.CrossEntropyLoss, ROWS),
    ],
)
def test_what_a_loss_may_be(source: Any, count: int) -> None:
    loss = loss_from(source, "mine")
    loss.check(SCORES, LABELS)
    for _ in range(2):
        part = loss.summed(SCORES, LABELS)
        assert float(part.total) == pytest.approx(float(per_row(SCORES, LABELS).sum()), rel=1e-12)
        assert part.count == count


def test_a_librarys_own_reduction_is_taken_at_its_word() -> None:
    loss = loss_from(Focal(), "focal")
    loss.check(SCORES, LABELS)
    part = loss.summed(SCORES, LABELS)
    assert float(part.total) / part.count == pytest.approx(float(Focal()(SCORES, LABELS)), rel=1e-12)
    for use in ("check", "summed"):  # wherever it is computed: some rows may hide what others show
        with pytest.raises(LossError, match=r"what it divides by is not known; return \(sum, count\)"):
            getattr(loss_from(Focal(divide=True), "focal"), use)(SCORES, LABELS)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda o, t: F.cross_entropy(o, t) * 1, "returns a mean over the rows of a pass: return one value a row, or"),
        (lambda o, t: o.sum() ** 2, "returns a number that is no sum over the rows"),
        (lambda o, t: ((o - o.mean(0)) ** 2).sum(), "no sum over the rows"),  # doubles, and yet its rows mix
        (lambda o, t: 1.0, "returned float"),
        (lambda o, t: o.argmax(), "returned a tensor of torch.int64"),
        (lambda o, t: o.sum(0)[:2].repeat(2), "gave shape"),
        (lambda o, t: (o - 1) ** 2, "does not say what the sum is divided by"),
        (lambda o, t: (F.cross_entropy(o, t), len(t)), r"returns \(mean, count\)"),
        (lambda o, t: (o.sum(), 7), "its count is the same for twice the rows"),
        (lambda o, t: (o.sum(), o.detach().sum() * float("nan")), "its count is nan"),
        (lambda o, t: (o.sum(), -len(t)), "its count is -12"),
        (lambda o, t: (o.sum(1), t), "both must be one number"),
        (Smoothed(), "returns a mean over the rows"),
        (nn.MSELoss(reduction="sum"), "has reduction='sum', but a step divides by a count"),
        (functools.partial(F.cross_entropy, reduction="sum"), "has reduction='sum'"),
        (Centres(), "has parameters of its own"),
        (Focal("sum"), "has reduction='sum'"),
        (3, "is int, expected a function"),
        ("relu", "has no loss 'relu'"),
        ("no_such_loss", "has no loss"),
        (nn.Linear, "is a class that needs arguments"),
    ],
)
def test_what_is_no_sum_and_count_is_refused(source: Any, message: str) -> None:
    with pytest.raises(LossError, match=message) as caught:
        loss_from(source, "mine").summed(SCORES, LABELS)
    assert "\n" not in str(caught.value)


def test_a_count_that_depends_on_the_weights_is_refused() -> None:
    with pytest.raises(LossError, match="its count depends on the weights"):
        loss_from(lambda o, t: (o.sum(), o.exp().sum()), "mine").summed(SCORES.clone().requires_grad_(True), LABELS)


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_outputs_that_torch_spreads_out_are_refused() -> None:
    for name in ("poisson_nll_loss", "kl_div", "huber_loss"):
        with pytest.raises(LossError, match=r"spreads outputs \(12, 1\) and targets \(12,\) out to \(12, 12\)"):
            loss_from(name, name).check(normal(ROWS, 1), normal(ROWS).exp())


def test_a_loss_of_zero_proves_nothing_yet() -> None:
    loss = loss_from(lambda output, target: (output - target).square().mean(), "mine")
    assert loss.summed(torch.ones(4, 2), torch.ones(4, 2)).total == 0.0
    with pytest.raises(LossError):
        loss.summed(torch.ones(4, 2), torch.zeros(4, 2))


def test_nan_is_no_matter_of_sums_and_means() -> None:
    assert loss_from(lambda o, t: o.sum() * float("nan"), "mine").summed(SCORES, LABELS).total.isnan()


def test_the_tests_of_a_loss_draw_no_random_numbers() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    loss_from(lambda o, t: per_row(o, t).sum() + 0 * torch.rand(()), "mine").summed(SCORES, LABELS)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    torch.rand(())
    assert torch.equal(after, torch.get_rng_state()), "one number is the loss's own"


# --- what models return ------------------------------------------------------------------------------------------

Named = collections.namedtuple("Named", "logits aux")


@dataclasses.dataclass(frozen=True)
class Record:
    logits: Tensor
    aux: Any


class ModelOutput(collections.OrderedDict[str, Any]):
    """Attributes beside keys, as in Hugging Face's."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


AUX = normal(ROWS, 2)
OUTPUTS = [
    Named(SCORES, AUX),
    Record(SCORES, [AUX, "name", None]),
    ModelOutput(logits=SCORES, aux={"deep": (AUX, 3)}),
]


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: type(output).__name__)
def test_outputs_of_all_kinds_pass_whole(output: Any) -> None:
    loss = loss_from(lambda o, t: per_row(o.logits, t).sum(), "mine")
    assert float(loss.summed(output, LABELS).total) == pytest.approx(float(per_row(SCORES, LABELS).sum()))
    with pytest.raises(LossError, match="a mean over the rows"):
        loss_from(lambda o, t: F.cross_entropy(o.logits, t), "mine").summed(output, LABELS)
    same = changed(output, lambda part: part + 1)
    assert type(same) is type(output)
    assert torch.equal(same.logits, SCORES + 1)
    assert torch.equal(output.logits, SCORES), "the output itself stays as it was"


def test_structured_outputs_are_doubled_where_they_have_rows() -> None:
    output = {"a": (torch.ones(4, 2), "label"), "b": [torch.ones(4)], "scale": torch.ones(1)}
    sums = loss_from(lambda o, t: (o["a"][0].sum() + o["b"][0].sum() + t.sum()) * o["scale"].sum(), "mine")
    assert sums.summed(output, torch.ones(4)).total == 16.0
    with pytest.raises(LossError):
        loss_from(lambda o, t: o["a"][0].mean() + t.mean(), "mine").summed(output, torch.ones(4))
