"""`gradmux status`: one run now, or as it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stderr, stdout, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gradmux.orchestrator.runs.status import RunStatus

LOOK_S = 0.5


@command("status", example="gradmux status digits-1 --watch")
@click.argument("run")
@click.option("--watch", is_flag=True, help="Show it again and again, until nothing runs it any more.")
@pass_settings
def status_command(settings: Settings, run: str, watch: bool) -> None:
    """Tell the state of RUN: steps and loss of each model, rounds, seconds billed, and why it ended if it did."""
    from gradmux.orchestrator.runs.history import Follower
    from gradmux.orchestrator.runs.paths import find_run
    from gradmux.orchestrator.runs.status import status_of

    paths = find_run(settings.home, run)
    follower = Follower(paths.record)
    status = status_of(paths, follower)
    if watch:
        from rich.live import Live

        with Live(_shown(status), console=stderr(settings), transient=True) as live:
            while status.state.active:
                time.sleep(LOOK_S)
                status = status_of(paths, follower)
                live.update(_shown(status))
    print_json(status.to_dict()) if settings.json else stdout().print(_shown(status))


def _shown(status: RunStatus) -> RenderableType:
    from rich.console import Group

    told = [("run", status.run), ("state", status.state.value + (f": {status.reason}" if status.reason else ""))]
    if status.process:
        told.append(("process", f"{status.process}, begun {status.created}"))
    if status.rounds:
        calls = f"{status.invocations} invocations, {status.failed} of them failed, {status.in_flight} not back"
        told.append(("rounds", f"{status.rounds} in {status.wall_s:.1f} s; {calls}"))
        told.append(("billed", f"{status.billed_s:.1f} s"))
    if status.lives > 1:
        told.append(("lives", f"{status.lives}; {status.redone} gradients were computed again"))
    if status.state.resumable:
        told.append(("go on with", f"gradmux resume {status.run}"))
    told.append(("folder", status.folder))
    rows = [
        (model.name, f"{model.steps}/{model.of}", "" if model.train_loss is None else f"{model.train_loss:.4f}")
        for model in status.models
    ]
    models = table(("model", "steps", "train loss"), rows, right=("steps", "train loss"))
    return Group(facts(told), models) if rows else Group(facts(told))
