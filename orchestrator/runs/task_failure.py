"""A task that failed for good: its request is kept, and the error says which model and step it was.

Read next: `failed.py`, which keeps it, and `diverged.py`.
"""

from __future__ import annotations

from gradmux.lambda_worker.contract import encode_request
from gradmux.orchestrator.errors import Diverged, RunStopped, TaskFailed
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.runs.assemble import Assembly
from gradmux.orchestrator.runs.diverged import Diverging
from gradmux.orchestrator.runs.failed import save_failed
from gradmux.orchestrator.training.requests import RequestBuilder


def explained(
    failure: TaskFailed, life: Assembly, rounds: Rounds, requests: RequestBuilder, diverging: Diverging
) -> TaskFailed | Diverged:
    """The error with model and step in it. Keeps the request of the task, for `gradmux replay-task`."""
    plan, models = life.prepared.plan, life.prepared.models
    tasks = " and ".join(f"model {models[plan.model(job)].name!r}, step {plan.step(job)}" for job in failure.jobs)
    request = requests.build(rounds.last_invocation(failure.round, failure.worker))
    named = [key for task in request.tasks for key in (task.model, task.weights.key)]
    named += [key for each in request.stretches for key in (each.model, each.state.key)]
    keys = dict.fromkeys(filter(None, named))
    name = f"life{life.life.epoch}-round{failure.round}-worker{failure.worker}"
    hint = f"`gradmux replay-task {life.paths.run}` runs it here"
    try:
        save_failed(life.paths, name, encode_request(request), ((key, life.store.get(key)) for key in keys))
    except (RunStopped, FileNotFoundError) as error:
        hint = f"its request could not be kept: {error}"
    return diverging.found(failure, hint) or failure.named(tasks, hint)
