"""What torch divides by where a loss has reduction="mean": its count, as one number for each row.

    elements   the rule of almost all: mse, l1, huber, bce, hinge, ... (one value a row where "none" gives one a row)
    classes    cross_entropy and nll_loss: the summed class weights of the targets that count, `ignore_index` left out;
               for targets that are probabilities, the number of predictions
    rows       kl_div with reduction="batchmean"

A loss of torch that stands here under no rule is refused: ctc_loss (it divides each row by its own length), and those
to come. Losses from elsewhere are taken to follow `elements`, and held to their own mean wherever they are computed.
Knows no loss object. Read `losses.py` next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmux.lambda_worker.structure import Values, first, row_count

__all__ = ["Divisor", "Rule", "rule_of_function", "rule_of_module"]

Divisor: TypeAlias = Callable[[Tensor, Values], Tensor]
"""(values with reduction="none", target) -> the count of each row, (rows,) float64"""

TORCH = "torch.nn."
BY_CLASS = (F.cross_entropy, F.nll_loss)
BY_ELEMENTS = (
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.cosine_embedding_loss,
    F.gaussian_nll_loss,
    F.hinge_embedding_loss,
    F.huber_loss,
    F.kl_div,
    F.l1_loss,
    F.margin_ranking_loss,
    F.mse_loss,
    F.multi_margin_loss,
    F.multilabel_margin_loss,
    F.multilabel_soft_margin_loss,
    F.poisson_nll_loss,
    F.smooth_l1_loss,
    F.soft_margin_loss,
    F.triplet_margin_loss,
    F.triplet_margin_with_distance_loss,
)
CLASS_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss)
ELEMENT_MODULES = (
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.CosineEmbeddingLoss,
    nn.GaussianNLLLoss,
    nn.HingeEmbeddingLoss,
    nn.HuberLoss,
    nn.KLDivLoss,
    nn.L1Loss,
    nn.MSELoss,
    nn.MarginRankingLoss,
    nn.MultiLabelMarginLoss,
    nn.MultiLabelSoftMarginLoss,
    nn.MultiMarginLoss,
    nn.PoissonNLLLoss,
    nn.SmoothL1Loss,
    nn.SoftMarginLoss,
    nn.TripletMarginLoss,
    nn.TripletMarginWithDistanceLoss,
)
IGNORE_INDEX = -100
"""torch's default"""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a loss divides by."""

    divisor: Divisor
    torchs_own: bool
    """then the rule is known to hold, and rows do not mix"""


def by_elements(values: Tensor, target: Values) -> Tensor:
    """As many as the loss has values."""
    rows = row_count(target)
    return torch.full((rows,), values.numel() / rows, dtype=torch.float64)


def by_rows(values: Tensor, target: Values) -> Tensor:
    """One a row."""
    return torch.ones(row_count(target), dtype=torch.float64)


@dataclass(frozen=True)
class ByClass:
    """The weights of the classes that count, as cross_entropy and nll_loss have it."""

    weight: Tensor | None
    """(classes,)"""
    ignore_index: int

    def __call__(self, values: Tensor, target: Values) -> Tensor:
        classes = first(target)
        rows = classes.shape[0]
        if classes.is_floating_point():  # probabilities: torch divides by predictions, whatever their weights
            return torch.full((rows,), classes.numel() / classes.shape[1] / rows, dtype=torch.float64)
        counted = classes.ne(self.ignore_index)
        if self.weight is None:
            return counted.reshape(rows, -1).sum(1, dtype=torch.float64)
        weights = self.weight.double()[classes.where(counted, 0)] * counted
        return weights.reshape(rows, -1).sum(1)


def rule_of_module(module: nn.Module) -> Rule | None:
    """The rule of a loss module; None for one of torch's that has none."""
    if _is_of(module, CLASS_MODULES):
        return Rule(ByClass(module.weight, int(module.ignore_index)), torchs_own=True)  # type: ignore[arg-type]
    return _rule(module.reduction, _is_of(module, ELEMENT_MODULES), type(module).__module__)


def rule_of_function(function: Callable[..., Any], reduction: str) -> Rule | None:
    """The same of a function with a `reduction` of its own, or a functools.partial of one."""
    options: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        options = {**function.keywords, **options}
        function = function.func
    if function in BY_CLASS:
        divisor = ByClass(options.get("weight"), int(options.get("ignore_index", IGNORE_INDEX)))
        return Rule(divisor, torchs_own=True)
    return _rule(reduction, function in BY_ELEMENTS, getattr(function, "__module__", None) or "")


def _rule(reduction: object, known: bool, module_name: str) -> Rule | None:
    if not known and module_name.startswith(TORCH):
        return None
    return Rule(by_rows if reduction == "batchmean" else by_elements, torchs_own=known)


def _is_of(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Does it compute what one of these does? A subclass may do something else."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)
