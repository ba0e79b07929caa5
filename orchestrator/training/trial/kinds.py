"""The trial of all models of a job, once for each kind: what passes they need, and what must travel beside their code.

Models of one kind have the same factory, arguments, loss and type; they differ in seeds and optimizers, which do not
matter here. Read next: `outcome.py` and `clean.py`, which ask; `orchestrator/runs/prepare.py` calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradmux.lambda_worker import flat
from gradmux.lambda_worker.gradient import Batch, spread_sum
from gradmux.lambda_worker.models import Model, encode_spec
from gradmux.lambda_worker.rehearsal import MOST_ELEMENTS, Part, Told
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.code import first_line
from gradmux.orchestrator.training.dataset import Dataset
from gradmux.orchestrator.training.memory import largest_bytes, require_pass, rows_that_fit
from gradmux.orchestrator.training.models import ModelPlan, kind_of, make_spec, seeded
from gradmux.orchestrator.training.spool import Spool
from gradmux.orchestrator.training.trial.clean import find_missing
from gradmux.orchestrator.training.trial.holding import bytes_per_row
from gradmux.orchestrator.training.trial.outcome import FEW, Outcome, find_outcome
from gradmux.orchestrator.training.trial.packages import Ask, require_packages
from gradmux.orchestrator.training.trial.playing import RowsOf

PASS_ROWS = 32
"""of a pass where passes are fixed and the user did not say"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tried:
    """One kind of model."""

    outcome: Outcome
    carries: Any
    """modules that travel beside its functions, by name"""
    told: Told | None
    """what the clean process said; None when it was not asked"""
    row_bytes: float = 0.0
    """that each row of a pass holds until its backward"""


def try_kinds(
    plans: Sequence[ModelPlan],
    model_of: Callable[[int], Model],
    dataset: Dataset,
    *,
    free: bool,
    clean: bool,
    packages: Ask | None = None,
    memory_mb: int | None = None,
    rows_mb: float = 0.0,
) -> tuple[list[ModelPlan], list[Tried]]:
    """The plans as they will be trained, and what was found about each, by model.

    `plans` have the passes that they get if theirs must be fixed; those that need none are freed, if `free`. `clean`:
    ask the process without the user's files, too, and whether the backend has the packages. `memory_mb` is a worker's,
    of which rows take `rows_mb`: free passes get what fits into the rest. Warns.
    Raises: ConfigError that names the model.
    """
    known: dict[Any, Tried] = {}
    made, found = [], []
    for index, plan in enumerate(plans):
        kind = kind_of(plan)
        if kind not in known:
            known[kind] = _try(seeded(plan), model_of(index), dataset, clean, packages)
            _tell(known[kind].outcome, plan, logging.WARNING if free else logging.INFO)
        tried = known[kind]
        pass_rows = plan.pass_rows if tried.outcome.fixed or not free else None
        most_rows = (
            None
            if memory_mb is None
            else _fitting(plan, pass_rows, tried.row_bytes, model_of(index), memory_mb, rows_mb)
        )
        buffers = tried.outcome.buffers
        made.append(replace(plan, pass_rows=pass_rows, carries=tried.carries, buffers=buffers, most_rows=most_rows))
        found.append(tried)
    return made, found


def _fitting(
    plan: ModelPlan, pass_rows: int | None, row_bytes: float, model: Model, has_mb: int, rows_mb: float
) -> int | None:
    """The most rows of a free pass. Warns of fixed ones that may not fit, and raises ConfigError where they cannot."""
    model_bytes = largest_bytes([model.module])
    if pass_rows is None:
        return rows_that_fit(row_bytes, model_bytes, has_mb - round(rows_mb))
    require_pass(plan.name, pass_rows, row_bytes, model_bytes, has_mb)
    return None


def _tell(outcome: Outcome, plan: ModelPlan, level: int) -> None:
    """What depends on the passes: no warning where the job itself says how large they are."""
    said = outcome.warning(plan.name, plan.pass_rows or PASS_ROWS)
    if said is not None:
        log.log(level, said)


def _try(plan: ModelPlan, model: Model, dataset: Dataset, clean: bool, packages: Ask | None) -> Tried:
    rows = RowsOf(dataset, model.dtype)
    try:
        outcome = find_outcome(model, rows, plan.name, plan.pass_rows or PASS_ROWS)
        row_bytes = bytes_per_row(model, rows, FEW)
    except ConfigError:
        raise
    except Exception as error:  # the user's own model and loss
        told = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(f"model {plan.name!r} cannot be trained on up to {plan.pass_rows} rows: {told}") from error
    if not clean:
        return Tried(outcome, plan.carries, None, row_bytes)
    carries, told_clean = _try_clean(plan, model, rows, packages)
    for file in told_clean.files:
        log.warning(
            "model %r: its code reads %s, which this machine has: workers elsewhere, as on AWS, do not; read it when "
            "the module is imported, or pass its content by args",
            plan.name,
            file,
        )
    return Tried(outcome, carries, told_clean, row_bytes)


def _try_clean(plan: ModelPlan, model: Model, rows: RowsOf, packages: Ask | None) -> tuple[Any, Told]:
    """What must travel beside the model's functions. The clean process sees other rows first: they must not matter."""
    one, other = rows.blocks(2, FEW)
    spool = Spool()
    snapshot = spool.write(flat.to_view(each.reshape(-1)) for each in flat.pieces(model.module))
    passes = tuple(rows.columns(ids) for ids in (other, one))

    def ship(carried: Any) -> bytes:
        return encode_spec(make_spec(replace(plan, carries=carried)))

    part = Part(ship(plan.carries), str(snapshot), passes, rows.dataset.preparation.described())
    carries, told = find_missing(plan.name, ship, part, _here(model, rows, one))
    if packages is not None:
        require_packages(plan.name, replace(part, spec=ship(carries)), told, packages)
    return carries, told


def _here(model: Model, rows: RowsOf, ids: list[int]) -> Told:
    """What this process computes of these rows; the model is as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model.hold()
        coded = spread_sum(model, Batch(*rows.read(ids)), MOST_ELEMENTS)
        model.reset_buffers()
    finally:
        torch.set_num_threads(threads)
    return Told(tuple(coded.sums.tolist()), coded.gradient.numpy())
