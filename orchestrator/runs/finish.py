"""The end of a run: weights, evaluation and result in its folder; from then on it is done.

Knows no backend and no fleet. Read next: `train.py`, which calls it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

from torch import nn

from gradmux.orchestrator.disk import DiskError, make_private, write_whole
from gradmux.orchestrator.record import EndLine
from gradmux.orchestrator.results import ModelResult, RunResult, Trained
from gradmux.orchestrator.runs.history import History, read_history
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.schemes.scheme import Params
from gradmux.orchestrator.training.checkpoint import save_weights
from gradmux.orchestrator.training.code import first_line
from gradmux.orchestrator.training.data import Dataset
from gradmux.orchestrator.training.trainer import TorchTrainer

log = logging.getLogger(__name__)


def finish(prepared: Prepared, trainer: TorchTrainer, paths: RunPaths, rest: EndLine | None = None) -> Trained:
    """Saves weights and evaluation of every model, then the result: from then on the run is done.

    `rest`: what the record will say, and does not yet.
    """
    history = read_history(paths.record)
    if rest is not None:
        history.take(rest)
    averages = {plan.name: trainer.average(index) for index, plan in enumerate(prepared.models) if plan.ema is not None}
    result = RunResult(
        run=paths.run,
        state="done",
        scheme=prepared.config.scheme.name,
        params=_told_params(prepared, history),
        workers=prepared.scheme().workers,
        load=history.load,
        rounds=history.rounds,
        wall_s=history.wall_s,
        billed_s=history.billed_s,
        invocations=history.invocations,
        models=_finish_models(prepared, trainer, paths, history, averages),
        max_residual=history.max_residual,
        max_amplification=history.max_amplification,
        record=paths.record,
        cpus=tuple(sorted(history.cpus)),
        buffers_stayed=history.buffers_stayed,
        cost={"beside": history.beside.calls, "beside_s": history.beside.billed_s},
    )
    _write(paths, result)
    modules = {plan.name: trainer.module(index) for index, plan in enumerate(prepared.models)}
    return Trained(result, modules, averages)


def with_bill(trained: Trained, paths: RunPaths, timeout_s: float) -> Trained:
    """The same with what the record says now of calls and their bill; of those that are still out, the most it can be.

    `timeout_s`: how long a call may take.
    """
    history = read_history(paths.record)
    cost = {"beside": history.beside.calls, "beside_s": history.beside.billed_s}
    if history.in_flight:
        cost |= {"not_back": history.in_flight, "not_back_s_at_most": history.in_flight * timeout_s}
    result = replace(
        trained.run,
        billed_s=history.billed_s,
        invocations=history.invocations,
        cpus=tuple(sorted(history.cpus)),
        cost=cost,
    )
    try:
        _write(paths, result)
    except DiskError as error:
        log.warning("%s has all but the last bills: %s", paths.result, error)
    return replace(trained, run=result)


def _write(paths: RunPaths, result: RunResult) -> None:
    write_whole(paths.result, [json.dumps(result.to_dict(), indent=2).encode()])


def _told_params(prepared: Prepared, history: History) -> Params:
    """The scheme's; for `auto` what it chose last."""
    header = history.header
    if not prepared.auto or header is None:
        return prepared.params
    return {"scheme": header.scheme, "workers": header.workers, **header.params}


def _finish_models(
    prepared: Prepared, trainer: TorchTrainer, paths: RunPaths, history: History, averages: Mapping[str, nn.Module]
) -> tuple[ModelResult, ...]:
    """Saves the weights of all models, then evaluates each: what it may raise costs no more than its own figures."""
    make_private(paths.weights("").parent)
    for index, plan in enumerate(prepared.models):
        write_whole(paths.weights(plan.name), [save_weights(trainer.module(index))])
        if (average := averages.get(plan.name)) is not None:
            make_private(paths.average("").parent)
            write_whole(paths.average(plan.name), [save_weights(average)])
    results = []
    for index, plan in enumerate(prepared.models):
        told = {} if prepared.eval is None else _evaluation(trainer, index, plan.name, prepared.eval)
        if prepared.eval is not None and (average := averages.get(plan.name)) is not None:
            of_average = _evaluation(trainer, index, f"{plan.name} (ema)", prepared.eval, average)
            told |= {f"ema_{key}": value for key, value in of_average.items()}
        weights = paths.weights(plan.name)
        results.append(
            ModelResult(plan.name, prepared.plan.steps, history.losses[index], told, weights, history.metrics[index])
        )
    return tuple(results)


def _evaluation(
    trainer: TorchTrainer, model: int, name: str, rows: Dataset, module: nn.Module | None = None
) -> dict[str, float]:
    """What is finite of loss and accuracy, of another module if given; the log says why something is missing."""
    try:
        told = trainer.evaluate(model, rows) if module is None else trainer.judge(model, module, rows)
    except Exception as error:  # the user's own model and loss may raise anything
        reason = f"{type(error).__name__}: {first_line(error)}"
        log.error("model %r could not be evaluated, its weights are saved: %s", name, reason)
        return {}
    figures = {"loss": told.loss, **({} if told.accuracy is None else {"accuracy": told.accuracy}), **told.metrics}
    if not isfinite(told.loss):
        log.warning("model %r: its loss on the evaluation rows is %g, so it has diverged", name, told.loss)
    return {key: value for key, value in figures.items() if isfinite(value)}
