"""The end of a run: weights, evaluation and result in its folder; from then on it is done.

Knows no backend and no fleet. Read next: `wiring.py`, which calls it.
"""

from __future__ import annotations

import json

from cli.preparation import Prepared
from orchestrator.api import Trained
from orchestrator.disk import write_whole
from orchestrator.results import ModelResult, RunResult
from orchestrator.runs.history import History, read_history
from orchestrator.runs.paths import RunPaths
from orchestrator.schemes.scheme import Params
from orchestrator.training.checkpoint import save_weights
from orchestrator.training.data import Dataset
from orchestrator.training.trainer import TorchTrainer


def finish(prepared: Prepared, trainer: TorchTrainer, paths: RunPaths) -> Trained:
    """Saves weights and evaluation of every model, then the result: from then on the run is done."""
    history = read_history(paths.record)
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
        models=_finish_models(prepared, trainer, paths, history),
        max_residual=history.max_residual,
        max_amplification=history.max_amplification,
        record=paths.record,
        cpus=tuple(sorted(history.cpus)),
        cost={"beside": history.beside.calls, "beside_s": history.beside.billed_s},
    )
    write_whole(paths.result, [json.dumps(result.to_dict(), indent=2).encode()])
    return Trained(result, {plan.name: trainer.module(index) for index, plan in enumerate(prepared.models)})


def _told_params(prepared: Prepared, history: History) -> Params:
    """The scheme's; for `auto` what it chose last."""
    header = history.header
    if not prepared.auto or header is None:
        return prepared.params
    return {"scheme": header.scheme, "workers": header.workers, **header.params}


def _finish_models(
    prepared: Prepared, trainer: TorchTrainer, paths: RunPaths, history: History
) -> tuple[ModelResult, ...]:
    """Saves the weights and evaluates every model."""
    paths.weights("").parent.mkdir(exist_ok=True)
    results = []
    for index, plan in enumerate(prepared.models):
        checkpoint = paths.weights(plan.name)
        write_whole(checkpoint, [save_weights(trainer.module(index))])
        told = {} if prepared.eval is None else _evaluation(trainer, index, prepared.eval)
        results.append(ModelResult(plan.name, prepared.plan.steps, history.losses[index], told, checkpoint))
    return tuple(results)


def _evaluation(trainer: TorchTrainer, model: int, rows: Dataset) -> dict[str, float]:
    told = trainer.evaluate(model, rows)
    return {"loss": told.loss, **({} if told.accuracy is None else {"accuracy": told.accuracy})}
