"""Ordinary training in this one process, on the same batches: what a distributed run must agree with.

A plain torch loop that shares no code with trainer and worker, so that an error of theirs shows: the module, torch's
own loss over all outputs of the batch, `backward`, clipping, optimizer and scheduler as torch has them. Only which rows
a batch has comes from where they have it, since that is what a job is.

A batch goes through the model in passes: those of `pass_rows`, or, where that is not given, one for each of the
scheme's `chunk_sizes` (which matters to what draws random numbers), or the whole batch. Each begins with the buffers
that the step began with, and with random numbers of its own. Of fixed passes the first one's buffers count. BatchNorm
normalises by its running statistics, or each pass by its own; the whole batch updates those, once a step.
Read next: `orchestrator/reference.py`, which trains the models of a job.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import lr_scheduler, swa_utils

from gradmux.lambda_worker.order import BatchOrder
from gradmux.lambda_worker.structure import Weighted, mapped, row_count
from gradmux.orchestrator.training.code import find_code
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.models import ModelPlan

DTYPES = {"float32": torch.float32, "float64": torch.float64}
PAIR = 2


class PlainModel:
    """One model, trained as anybody would."""

    def __init__(self, plan: ModelPlan) -> None:
        """Its initial weights and dropout are those of its name in any job with the plan's seed."""
        self._plan, self._seed = plan, _mixed(plan.seed, plan.name)
        with _drawing_from(self._seed):
            module = find_code(plan.factory, "factory")(**plan.args)
        self.module: nn.Module = _cast(module, DTYPES[plan.dtype])
        self.module.train()
        norms = [each for each in self.module.modules() if isinstance(each, _BatchNorm) and each.training]
        self._norms = [norm for norm in norms if norm.running_mean is not None]
        for norm in self._norms if plan.norms == "running" else ():
            norm.eval()
        self._loss = _loss(plan)
        self._optimizer = _optimizer(plan, self.module)
        self._scheduler = None
        if plan.scheduler is not None:
            self._scheduler = _scheduler(plan.scheduler, plan.scheduler_args, self._optimizer)
        self.average: swa_utils.AveragedModel | None = None
        if plan.ema is not None:
            decay = swa_utils.get_ema_multi_avg_fn(plan.ema)  # type: ignore[no-untyped-call]
            self.average = swa_utils.AveragedModel(self.module, multi_avg_fn=decay)

    def step(self, passes: Sequence[tuple[int, Any, Any]], step: int) -> float:
        """One step over the passes, (number, inputs, target) each; the mean loss."""
        self._optimizer.zero_grad()
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        seen = [_Seen(norm) for norm in self._norms]
        outputs, after = [], before
        for number, inputs, _ in passes:
            self._set_buffers(before)
            with _drawing_from(_mixed(_mixed(self._seed, step), number)):
                outputs.append(_call(self.module, inputs))
            if number == 0 and self._plan.pass_rows is not None:
                after = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        self._set_buffers({**after, **{name: before[name] for name in self._running()}})
        loss = self._loss(outputs, [target for _, _, target in passes])
        loss.backward()  # type: ignore[no-untyped-call]
        self._apply(loss.item())
        for each in seen:
            each.update()
        if self.average is not None:
            self.average.update_parameters(self.module)
        return loss.item()

    def _apply(self, loss: float) -> None:
        parameters = list(self.module.parameters())
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        if self._plan.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self._plan.clip_value)
        if self._plan.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self._plan.clip_norm)
        self._optimizer.step()
        if isinstance(self._scheduler, lr_scheduler.ReduceLROnPlateau):
            self._scheduler.step(loss)
        elif self._scheduler is not None:
            self._scheduler.step()

    def _running(self) -> list[str]:
        """Names of the running statistics, which the whole batch updates."""
        named = {id(buffer): name for name, buffer in self.module.named_buffers()}
        return [named[id(buffer)] for norm in self._norms for buffer in norm.buffers(recurse=False)]

    def _set_buffers(self, values: Mapping[str, Tensor]) -> None:
        """Tensors of their own for each pass: what backward needs of an earlier one stays as it was."""
        for name, value in values.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, value.clone())


class _Seen:
    """The values that a batch-norm layer sees in one step, of which its running statistics are then made."""

    def __init__(self, norm: Any) -> None:
        self._norm, self._values = norm, []  # type: ignore[var-annotated]
        self._hook = norm.register_forward_pre_hook(lambda _, inputs: self._values.append(inputs[0].detach().double()))

    @torch.no_grad()
    def update(self) -> None:
        self._hook.remove()
        norm, count = self._norm, sum(each.numel() // each.shape[1] for each in self._values)
        if count <= 1:
            return
        norm.num_batches_tracked += 1
        factor = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        channels = torch.cat([each.transpose(0, 1).flatten(1) for each in self._values], 1)
        norm.running_mean += factor * (channels.mean(1).to(norm.running_mean.dtype) - norm.running_mean)
        norm.running_var += factor * (channels.var(1).to(norm.running_var.dtype) - norm.running_var)


def train_reference(
    plan: ModelPlan,
    dataset: Dataset,
    order: BatchOrder,
    steps: int,
    *,
    chunk_sizes: NDArray[np.float64] | None = None,
) -> tuple[nn.Module, list[float]]:
    """The trained module and the mean loss of every step."""
    model = PlainModel(plan)
    losses = train_plainly(model, plan, dataset, order, steps, chunk_sizes)
    return model.module, losses


def train_plainly(
    model: PlainModel,
    plan: ModelPlan,
    dataset: Dataset,
    order: BatchOrder,
    steps: int,
    chunk_sizes: NDArray[np.float64] | None = None,
) -> list[float]:
    """Trains it for so many steps; the mean loss of each."""
    losses = []
    for step in range(steps):
        ids, passes = order.batch(step), []
        for number, lo, hi in _cut(plan.pass_rows, chunk_sizes, order.batch_size):
            if hi > lo:
                rows = dataset.batch(np.sort(ids[lo:hi]), DTYPES[plan.dtype], order.epoch(step))
                passes.append((number, rows.inputs, rows.target))
        losses.append(model.step(passes, step))
    return losses


def _cut(pass_rows: int | None, chunk_sizes: NDArray[np.float64] | None, rows: int) -> list[tuple[int, int, int]]:
    """(number, first row, last row + 1) of every pass of a batch. A pass that is not fixed is numbered by its row."""
    if pass_rows is None:
        return [(lo, lo, hi) for lo, hi in pairwise(_bounds(chunk_sizes, rows))]
    count = math.ceil(rows / pass_rows)
    return [(number, number * rows // count, (number + 1) * rows // count) for number in range(count)]


def _bounds(chunk_sizes: NDArray[np.float64] | None, rows: int) -> list[int]:
    """Where a batch is cut: at the nearest row, the later one of two."""
    if chunk_sizes is None:
        return [0, rows]
    return [0, *(math.floor(float(share) * rows + 0.5 + 1e-9) for share in np.cumsum(chunk_sizes)[:-1]), rows]


def _mixed(*seeds: int | str) -> int:
    """As a job has it: 63 bits of BLAKE2b of numbers and names with commas between them."""
    digest = hashlib.blake2b(",".join(map(str, seeds)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") // 2


@contextmanager
def _drawing_from(seed: int) -> Iterator[None]:
    """Within it all three generators draw from this seed on; afterwards nothing has been drawn."""
    of_numpy, of_python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        yield
    np.random.set_state(of_numpy)
    random.setstate(of_python)


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Its float32 and float64 tensors as `dtype`, others as they are."""
    made: nn.Module = module._apply(  # type: ignore[no-untyped-call]
        lambda each: each.to(dtype) if each.dtype in DTYPES.values() else each
    )
    return made


def _call(function: Any, values: Any, *before: Any, **options: Any) -> Any:
    """Tuples by position, dicts by name."""
    if isinstance(values, dict):
        return function(*before, **values, **options)
    return function(*before, *values, **options) if isinstance(values, tuple) else function(*before, values, **options)


# --- loss ----------------------------------------------------------------------------------------------------------

MeanLoss = Callable[[Sequence[Any], Sequence[Any]], Tensor]
"""(outputs, targets), by pass -> the mean over the batch"""


def _loss(plan: ModelPlan) -> MeanLoss:
    """torch's own losses are torch's own means of the whole batch; all others say by pass what they are."""
    found = getattr(F, plan.loss) if isinstance(plan.loss, str) and ":" not in plan.loss else None
    found = found or find_code(plan.loss, "loss")
    if isinstance(found, type):
        found = found()
    if isinstance(found, nn.Module):
        found = found.to(DTYPES[plan.dtype])

    def of_all(outputs: Sequence[Any], targets: Sequence[Any]) -> Tensor:
        if _is_mean(found) and not isinstance(targets[0], Weighted) and all(isinstance(o, Tensor) for o in outputs):
            return _call(found, _joined(targets), torch.cat(list(outputs)))  # type: ignore[no-any-return]
        parts = [_sum_and_count(found, output, target) for output, target in zip(outputs, targets, strict=True)]
        mean: Tensor = sum(total for total, _ in parts) / sum(count for _, count in parts)
        return mean

    return of_all


def _is_mean(loss: Any) -> bool:
    """torch's functions and modules whose reduction is a mean."""
    kind = getattr(loss, "func", loss)
    name = getattr(kind, "__module__", None) or type(loss).__module__
    reduction = getattr(loss, "reduction", getattr(loss, "keywords", {}).get("reduction", "mean"))
    return name.startswith("torch.nn.") and reduction in ("mean", "batchmean")


def _sum_and_count(loss: Any, output: Any, target: Any) -> tuple[Any, float]:
    if isinstance(target, Weighted):
        return _weighted(loss, output, target)
    value = _call(loss, target, output)
    if isinstance(value, tuple | list) and len(value) == PAIR:
        return value[0], float(value[1])
    rows = row_count(target)
    means = isinstance(loss, nn.Module) and getattr(loss, "reduction", "") == "mean"
    return (value * rows if means else value.sum()), float(rows)


def _weighted(loss: Any, output: Any, target: Weighted) -> tuple[Any, float]:
    """Row by row: what a loss adds, and what its mean divides that by, both times the row's weight."""
    total, count = torch.zeros(()), 0.0
    for row, weight in enumerate(target.weights.tolist()):
        one = mapped(lambda each: each[row : row + 1], target.target)  # noqa: B023
        if _is_mean(loss):
            mean, added = (_call(_reduced(loss, how), one, output[row : row + 1]) for how in ("mean", "sum"))
            divisor = float(added / mean) if mean.isfinite() and mean != 0 else 0.0
        else:
            added, divisor = _sum_and_count(loss, output[row : row + 1], one)
        total, count = total + weight * added, count + weight * divisor
    return total, count


def _reduced(loss: Any, reduction: str) -> Any:
    """The loss with another reduction."""
    if not isinstance(loss, nn.Module):
        return partial(loss, reduction=reduction)
    other = copy.copy(loss)
    other.reduction = reduction  # type: ignore[assignment]
    return other


def _joined(targets: Sequence[Any]) -> Any:
    head = targets[0]
    if isinstance(head, dict):
        return {key: torch.cat([each[key] for each in targets]) for key in head}
    if isinstance(head, tuple):
        return tuple(torch.cat(column) for column in zip(*targets, strict=True))
    return torch.cat(list(targets))


# --- optimizer and scheduler -----------------------------------------------------------------------------------------


def _optimizer(plan: ModelPlan, module: nn.Module) -> torch.optim.Optimizer:
    named = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
    if not isinstance(plan.optimizer, str) or ":" in plan.optimizer:
        make = find_code(plan.optimizer, "optimizer")
        whole = next(iter(inspect.signature(make).parameters)) in ("model", "module")
        made = make(module if whole else _grouped(plan, module, named), **plan.optimizer_args)
    else:
        made = getattr(torch.optim, plan.optimizer)(_grouped(plan, module, named), **plan.optimizer_args)
    assert isinstance(made, torch.optim.Optimizer)
    return made


def _grouped(plan: ModelPlan, module: nn.Module, named: Sequence[tuple[str, nn.Parameter]]) -> Any:
    if not plan.groups:
        return [each for _, each in named]
    groups: list[dict[str, Any]] = [{"params": []}, *({"params": [], **group.args} for group in plan.groups)]
    for name, each in named:
        layer = type(module.get_submodule(name.rpartition(".")[0])).__name__
        matches = [
            number
            for number, group in enumerate(plan.groups, start=1)
            if any(fnmatchcase(name, p) for p in group.names) or any(fnmatchcase(layer, p) for p in group.layers)
        ]
        groups[matches[0] if matches else 0]["params"].append(each)
    return [group for group in groups if group["params"]]


def _scheduler(name: Any, args: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> Any:
    if name == "WarmupCosine":
        return lr_scheduler.LambdaLR(optimizer, _warmup_cosine(**args))
    given = dict(args)
    for key in ("lr_lambda", "scale_fn"):
        if key in given:
            many = isinstance(given[key], list | tuple)
            functions = [find_code(each, "scheduler") for each in (given[key] if many else [given[key]])]
            given[key] = functions if many else functions[0]
    if "schedulers" in given:
        tables = [dict(part) for part in given["schedulers"]]
        given["schedulers"] = [_scheduler(part.pop("name"), part, optimizer) for part in tables]
    if not isinstance(name, str) or ":" in name:
        return find_code(name, "scheduler")(optimizer, **given)
    return getattr(lr_scheduler, name)(optimizer=optimizer, **given)


def _warmup_cosine(warmup_steps: int, total_steps: int, floor: float = 0.0) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < warmup_steps:
            return (1 + step) / warmup_steps
        angle = math.pi * min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(angle))

    return factor
