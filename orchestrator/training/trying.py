"""Tries a model before anybody is paid: a few rows forward and backward, rows to judge by, the optimizer's own step.

Whatever the user's model, loss or optimizer raises becomes one ConfigError that names the model. Knows neither jobs nor
stores. Read next: `trainer.py`, which calls it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from gradmux.lambda_worker.losses import LossError
from gradmux.lambda_worker.metrics import metric_sums
from gradmux.lambda_worker.optimizers import label as name_of
from gradmux.lambda_worker.outputs import changed
from gradmux.lambda_worker.partials import each_partial
from gradmux.lambda_worker.randomness import torch_random
from gradmux.lambda_worker.schedules import step_scheduler
from gradmux.lambda_worker.state import encode_state
from gradmux.lambda_worker.structure import Values, Weighted, forward
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.allocator import give_back, keep_large_apart
from gradmux.orchestrator.training.code import first_line
from gradmux.orchestrator.training.dataset import Array, Dataset
from gradmux.orchestrator.training.models import Trained
from gradmux.orchestrator.training.trial.keeping import Kept, changed_parameters, told_parameters
from gradmux.orchestrator.training.trial.outcome import refuse
from gradmux.orchestrator.training.trial.playing import buffers_kept, is_large

TRIED_ROWS = 4
MOST_STEPS = 10_000

Play = Callable[[Trained, Values, Values], Tensor]
"""What is tried with some rows; gives the model's scores."""


def try_training(trained: Trained, dataset: Dataset) -> None:
    """A few rows forward and backward, then the rows with the least and the largest label; the model stays as it is.

    Notes which parameters have no part in the loss. Raises: ConfigError, also when a model that has not made a step yet
    gives a loss that is not finite.
    """
    if is_large(trained.module):
        keep_large_apart()
        give_back()
    _try_rows(trained, dataset, "trained", _with_gradient)


def try_evaluation(trained: Trained, dataset: Dataset) -> None:
    """The same for rows to judge by, in evaluation mode and without a gradient. Raises: ConfigError."""
    trained.module.eval()
    try:
        _try_rows(trained, dataset, "evaluated", _forward)
    finally:
        trained.model.train()


def rehearse(trained: Trained, steps: int) -> None:
    """One step of the optimizer, and of the scheduler `steps`, with a gradient of ones: the model is spoilt by it.

    Raises: ConfigError, also for a state that no checkpoint can hold. Beyond MOST_STEPS the scheduler is trusted.
    """
    plan, stepper = trained.plan, trained.stepper
    stepped, step = f"optimizer {name_of(plan.optimizer)}", 0
    try:
        with warnings.catch_warnings(action="ignore"):
            _step_by_ones(trained)
            stepped = f"scheduler {name_of(plan.scheduler or '')}"
            while stepper.scheduler is not None and step < min(steps, MOST_STEPS):
                step_scheduler(stepper.scheduler, 1.0)
                step += 1
    except Exception as error:  # torch's own classes raise all kinds, each for its own arguments
        raise ConfigError(f"model {plan.name!r}: {stepped} cannot do step {step}: {_told(error)}") from error
    try:
        encode_state(stepper.state())
    except Exception as error:  # also the user's own state_dict
        raise ConfigError(f"model {plan.name!r}: no checkpoint can hold how it is stepped: {_told(error)}") from error


def _step_by_ones(trained: Trained) -> None:
    """One step of the optimizer; of a large model by gradients that take no memory, if it takes such."""
    parameters = [each for index, each in enumerate(trained.model.parameters) if index not in trained.stepper.idle]
    taken = [each for each in parameters if each.requires_grad]
    if is_large(trained.module):
        for parameter in taken:
            parameter.grad = torch.ones((), dtype=parameter.dtype).expand(parameter.shape)
        with suppress(Exception):  # one that writes into gradients cannot: it gets real ones
            trained.stepper.optimizer.step()
            return
    for parameter in taken:
        parameter.grad = torch.ones_like(parameter)
    trained.stepper.optimizer.step()


def _try_rows(trained: Trained, dataset: Dataset, purpose: str, play: Play) -> None:
    """Plays the first rows, and the row of each label that is too small or too large for what came out of them."""
    first_rows = np.arange(min(TRIED_ROWS, dataset.rows))
    x, y = _rows(trained, dataset, first_rows)
    where = f"model {trained.plan.name!r} cannot be {purpose} on"
    try:
        output = _unchanged(trained, play, x, y)
    except ConfigError:
        raise
    except Exception as error:  # the user's own model and loss may raise anything
        raise ConfigError(f"{where} x {_shape(x)} and y {_shape(y)}: {_told(error)}") from error
    for row, label in dataset.labels():
        x, y = _rows(trained, dataset, np.append(first_rows[1:], row))
        if _takes(trained, output, y):
            continue
        try:
            _unchanged(trained, _forward, x, y)  # its own output, too: that of other rows may not go with it
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{where} label {label} (row {row}){_range(output, y)}: {_told(error)}") from error


@torch.no_grad()
def _takes(trained: Trained, output: Tensor, y: Values) -> bool:
    """Does the loss take these targets with the scores of other rows? That spares a forward pass."""
    try:
        with torch_random():
            trained.model.loss.summed(output, y)
    except Exception:  # the user's own loss
        return False
    return True


def _with_gradient(trained: Trained, x: Values, y: Values) -> Tensor:
    parameters = {index: each for index, each in enumerate(trained.model.parameters) if each.requires_grad}
    output = forward(trained.module, x)
    loss = trained.model.loss.summed(output, y).total
    if trained.steps == 0 and not torch.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss.item():g} before the first step")
    trained.model.loss.check(changed(output, Tensor.detach), y)
    _try_metrics(trained, output, y)
    _refuse_foreign(loss, parameters.values())
    places, taking = list(parameters), set[int]()
    each_partial(loss, list(parameters.values()), lambda index, _: taking.add(places[index]))
    trained.stepper.idle = frozenset(index for index in places if index not in taking)
    return output  # type: ignore[no-any-return]


def _try_metrics(trained: Trained, output: object, y: Values) -> None:
    """Raises LossError that names the metric, whatever it raises."""
    for name, metric in trained.model.metrics.items():
        try:
            metric_sums({name: metric}, changed(output, Tensor.detach), y)
        except LossError as error:
            raise LossError(str(error).replace("loss ", "metric ", 1)) from error
        except Exception as error:  # the user's own function
            raise LossError(f"metric {name!r} raised {_told(error)}") from error


def _refuse_foreign(loss: Tensor, own: Iterable[Tensor]) -> None:
    """Raises LossError when the loss also depends on trainable tensors that are no parameters of the model."""
    known, seen, waiting = {id(each) for each in own}, set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and id(leaf) not in known:
            raise LossError(
                f"the loss depends on a trainable tensor of shape {tuple(leaf.shape)} that is no parameter of the "
                "model, so no optimizer would step it: register it in the model"
            )
        waiting += [following for following, _ in node.next_functions]


@torch.no_grad()
def _forward(trained: Trained, x: Values, y: Values) -> Tensor:
    output = forward(trained.module, x)
    trained.model.loss.summed(output, y)
    _try_metrics(trained, output, y)
    return output  # type: ignore[no-any-return]


def _unchanged(trained: Trained, play: Play, x: Values, y: Values) -> Tensor:
    """Plays these rows, after which model and random numbers are as before. Raises: ConfigError when weights are not.

    A loss that torch spreads out over outputs of another shape mixes samples, and is no sum over them: it is refused.
    """
    before = told_parameters(trained.module)
    with torch_random(), warnings.catch_warnings(), buffers_kept(trained.module):
        warnings.filterwarnings("error", message="Using a target size")
        output = play(trained, x, y)
    refuse(Kept(changed_parameters(trained.module, before)), trained.plan.name)
    return output


def _range(output: object, y: Values) -> str:
    """What labels there can be, where the output has a score for each class."""
    if isinstance(output, Tensor) and isinstance(y, Tensor) and output.ndim == y.ndim + 1:
        return f", has {output.shape[1]} outputs, for labels 0 to {output.shape[1] - 1}"
    return ""


def _rows(trained: Trained, dataset: Dataset, rows: Array) -> tuple[Values, Values]:
    batch = dataset.batch(rows, trained.model.dtype)
    return batch.inputs, batch.target


def _shape(found: Values) -> str:
    if isinstance(found, dict):
        return "{" + ", ".join(f"{label}: {_shape(each)}" for label, each in found.items()) + "}"
    if isinstance(found, Weighted):
        return f"{_shape(found.target)} with weights"
    if isinstance(found, tuple):
        return "(" + ", ".join(map(_shape, found)) + ")"
    return f"{str(found.dtype).removeprefix('torch.')} {tuple(found.shape)}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
