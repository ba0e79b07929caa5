"""One step of a model: the batch's sum of gradients in, new weights out. The only place where weights change.

    divide by the count -> finite? -> clip -> optimizer -> scheduler -> batch norm's running statistics -> average

The client calls it for every step of a coded job; a worker calls it between the steps of a stretch. A step that is not
finite is a result (`Stepped.diverged`), with the model as it was, and nothing to try again. Knows neither jobs nor
stores. Shapes: p parameters, k sums. Read `optimizers.py` and `schedules.py` for what it holds, `state.py` for how that
is saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import get_ema_multi_avg_fn

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.buffers import FIXED_SUMS, SumIndex
from gradmux.lambda_worker.metrics import metrics_in
from gradmux.lambda_worker.models import Model
from gradmux.lambda_worker.norms import update_running_statistics
from gradmux.lambda_worker.optimizers import label, make_optimizer
from gradmux.lambda_worker.recipe import Recipe
from gradmux.lambda_worker.schedules import make_scheduler, step_scheduler

__all__ = ["StepError", "Stepped", "Stepper"]

NO_COUNT = 1e-12
"""of the rows: a decoded count as small as this is 0"""
CLIP_EPSILON = 1e-6
"""torch's, in clip_grad_norm_"""


class StepError(RuntimeError):
    """An optimizer or scheduler that raised."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step was."""

    loss: float
    """mean"""
    rows: float
    """of the batch, as decoded"""
    correct: float
    """predictions, as decoded"""
    norm: float
    """of the mean gradient, before it was clipped"""
    diverged: str = ""
    """what was not finite; then nothing was stepped"""
    metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """name -> (sum, count) over the batch, as decoded"""


class Stepper:
    """Optimizer, scheduler and average of one model."""

    def __init__(self, model: Model, recipe: Recipe) -> None:
        """Raises RecipeError in one line."""
        self.model, self.recipe = model, recipe
        self.optimizer: Optimizer = make_optimizer(recipe, model.module)
        self.scheduler: LRScheduler | None = None
        if recipe.scheduler is not None:
            self.scheduler = make_scheduler(recipe.scheduler, recipe.scheduler_args, self.optimizer)
        self.idle: frozenset[int] = frozenset()
        """parameters, by index, without part in the loss: torch gives such no gradient, not a zero"""
        self.average: list[Tensor] | None = None
        """of all parameters, once a step was made and if the recipe wants one"""

    def step(self, gradient_p: Tensor, sums_k: Tensor) -> Stepped:
        """One step by these sums over a batch; `gradient_p` is divided in place. Raises StepError."""
        rows, count = float(sums_k[SumIndex.SAMPLES]), float(sums_k[SumIndex.COUNT])
        correct = float(sums_k[SumIndex.CORRECT])
        if abs(count) <= NO_COUNT * rows:
            what = "no row of the batch counts in its loss (all targets ignored, or of weight 0): its mean is 0 / 0"
            return Stepped(math.nan, rows, correct, math.nan, what)
        mean_p = gradient_p.div_(count).to(self.model.dtype)
        loss, norm = float(sums_k[SumIndex.LOSS]) / count, _norm(mean_p)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return Stepped(loss, rows, correct, norm, f"the loss is {loss:g} and the gradient's norm is {norm:g}")
        self._set_gradients(mean_p, norm)
        self._apply(loss)
        for parameter in self.model.parameters:
            parameter.grad = None  # else the last gradient is still there when the next one comes
        if self.model.norms:
            update_running_statistics(self.model.norms, sums_k[self.model.statistics_from :])
        self._add_to_average()
        metrics = metrics_in(self.model.metrics, sums_k[FIXED_SUMS : self.model.statistics_from])
        return Stepped(loss, rows, correct, norm, metrics=metrics)

    def _set_gradients(self, mean_p: Tensor, norm: float) -> None:
        """Sets every .grad to a view of the mean gradient, which is clipped in place.

        A parameter without part in the loss has none, so that weight decay does not move it: as in plain torch.
        """
        if self.recipe.clip_value is not None:
            mean_p.clamp_(-self.recipe.clip_value, self.recipe.clip_value)
        if self.recipe.clip_norm is not None and norm > self.recipe.clip_norm:
            mean_p.mul_(self.recipe.clip_norm / (norm + CLIP_EPSILON))
        parameters = self.model.parameters
        for index, gradient in enumerate(flat.unflatten(mean_p, parameters)):
            if parameters[index].requires_grad:
                idle = index in self.idle and not gradient.any()
                parameters[index].grad = None if idle else gradient

    def _apply(self, loss: float) -> None:
        what = f"optimizer {label(self.recipe.optimizer)}"
        try:
            self.optimizer.step()
            what = f"scheduler {label(self.recipe.scheduler or '')}"
            step_scheduler(self.scheduler, loss)
        except Exception as error:  # torch's own classes raise all kinds, each for its own arguments
            line = str(error).strip().partition("\n")[0] or type(error).__name__
            raise StepError(f"{what} raised {type(error).__name__}: {line}") from error

    @torch.no_grad()
    def _add_to_average(self) -> None:
        """As torch.optim.swa_utils.AveragedModel does: the first step's weights, then a moving average."""
        if self.recipe.ema is None:
            return
        weights = [parameter.detach() for parameter in self.model.parameters]
        if self.average is None:
            self.average = [each.clone() for each in weights]
        else:
            average = get_ema_multi_avg_fn(self.recipe.ema)  # type: ignore[no-untyped-call]
            average(self.average, weights, 1)

    # --- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All but the model's own weights, as `state.encode_state` takes it; tensors are not copied."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "average": self.average,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from there. torch raises ValueError, KeyError or TypeError for another optimizer's state."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        average = state.get("average")
        self.average = None if average is None else [each.clone() for each in average]

    def average_into(self, module: nn.Module) -> None:
        """Sets another module's parameters to the average, and its buffers to the model's own: as AveragedModel has it.

        Without a step the average is the weights themselves.
        """
        flat.load_snapshot(module, flat.snapshot(self.model.module))
        if self.average is not None:
            flat.unflatten_into(flat.flatten(self.average), flat.parameters(module))


def _norm(gradient_p: Tensor) -> float:
    """Its Euclidean norm, also where the squares of its elements are more than its own dtype can hold."""
    norm = float(torch.linalg.vector_norm(gradient_p))
    return norm if math.isfinite(norm) else float(torch.linalg.vector_norm(gradient_p, dtype=torch.float64))
