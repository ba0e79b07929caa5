"""`gradmux replay-task`: what a task that failed for good does in this process."""

from __future__ import annotations

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json

FAILED_AGAIN = 1


@command("replay-task", example="gradmux replay-task digits-1")
@click.argument("run")
@click.argument("task", required=False)
@pass_settings
@click.pass_context
def replay_task_command(ctx: click.Context, settings: Settings, run: str, task: str | None) -> None:
    """Run the saved request of a TASK of RUN (else the newest one) that failed for good, here, with its traceback.

    When a task fails more often than its budget allows, the run stops and keeps its request under `failed/`. Exit code
    0 when it works here, 1 when it fails again.
    """
    from gradmux.cli.output import warn
    from gradmux.orchestrator.runs.failed import load_failed
    from gradmux.orchestrator.runs.keep import rows_again
    from gradmux.orchestrator.runs.ownership import distrust_run
    from gradmux.orchestrator.runs.paths import find_run
    from gradmux.orchestrator.runs.replay_task import replay

    paths = find_run(settings.home, run)
    failed = load_failed(paths, task)
    warn(distrust_run(paths))
    replayed = replay(failed, rows_again(paths))
    if settings.json:
        print_json({"run": paths.run, "task": failed.name, "results": [each.to_dict() for each in replayed]})
    else:
        for each in replayed:
            click.echo(f"{failed.name}, job {each.job}, slot {each.slot}: {each.status} {each.error}".rstrip())
            click.echo(each.traceback, nl=False)
    if any(each.status == "failed" for each in replayed):
        ctx.exit(FAILED_AGAIN)
