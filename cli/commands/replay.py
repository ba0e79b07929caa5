"""`gradmux replay`: every decision of a run taken anew over what was recorded."""

from __future__ import annotations

from dataclasses import asdict

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json


@command("replay", example="gradmux replay digits-1 --json")
@click.argument("run")
@pass_settings
def replay_command(settings: Settings, run: str) -> None:
    """Play RUN anew over its recorded delays: the same decisions, or the first one that differs (exit code 1).

    All of its lives, and the segments of a run under `auto`. Nothing is invoked and no model is trained.
    """
    from gradmux.orchestrator.runs.paths import find_run
    from gradmux.orchestrator.runs.replay import replay_run

    paths = find_run(settings.home, run)
    told = replay_run(paths)
    if settings.json:
        print_json({"run": paths.run, "same": told.difference is None, **asdict(told)})
    elif told.difference is not None:
        click.echo(told.difference.describe())
    else:
        lives = f"{told.lives} {'life' if told.lives == 1 else 'lives'}"
        click.echo(f"{paths.run}: the same decisions in {told.rounds} rounds and {told.jobs} gradients of {lives}")
    if told.difference is not None:
        raise click.exceptions.Exit(1)
