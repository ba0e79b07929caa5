"""`gradmux results`: the result of a run that is done."""

from __future__ import annotations

import click

from gradmux.cli.options import Settings, command, pass_settings


@command("results", example="gradmux results digits-1 --json")
@click.argument("run")
@pass_settings
def results_command(settings: Settings, run: str) -> None:
    """Print the result of RUN as `submit` did: losses, accuracy, time, and where the weights lie."""
    from gradmux.cli.results import tell_result
    from gradmux.orchestrator.runs.paths import find_run
    from gradmux.orchestrator.runs.status import read_result

    tell_result(settings, read_result(find_run(settings.home, run)))
