"""`gradmux logs`: what a run said, and says."""

from __future__ import annotations

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json


@command("logs", example="gradmux logs digits-1 -f")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until nothing runs it any more.")
@pass_settings
def logs_command(settings: Settings, run: str, follow: bool) -> None:
    """Print the log of RUN: one line a round, checkpoints, troubles, and how it ended."""
    from gradmux.orchestrator.runs.log import said
    from gradmux.orchestrator.runs.paths import find_run

    paths = find_run(settings.home, run)
    if settings.json:
        print_json({"run": paths.run, "lines": list(said(paths, follow=follow))})
        return
    for line in said(paths, follow=follow):
        click.echo(line)
