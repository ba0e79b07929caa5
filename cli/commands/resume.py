"""`gradmux resume`: goes on with a run that was stopped, cancelled or killed."""

from __future__ import annotations

import click

from cli.options import Settings, command, pass_settings
from cli.output import print_json, set_up_logging


@command("resume", example="gradmux resume digits-1 --detach")
@click.argument("run")
@click.option("--detach", is_flag=True, help="Train in a process of its own, which outlives this terminal.")
@click.option("--epoch", type=int, hidden=True, help="The number that this life was given.")
@pass_settings
def resume_command(settings: Settings, run: str, detach: bool, epoch: int | None) -> None:
    """Go on with RUN (a name, or its folder) from its last checkpoint, whatever ended it.

    It needs nothing but the run's folder. With a fractional code the weights are, bit for bit, those of a run that was
    never stopped; a cyclic or dft code decodes in the order of arrival, so they agree up to rounding.
    """
    from cli.detached import run_detached
    from cli.results import tell_result
    from orchestrator.runs.paths import find_run
    from orchestrator.runs.status import read_result

    set_up_logging(settings)
    paths = find_run(settings.home, run)
    if paths.result.exists():
        tell_result(settings, read_result(paths))
        return
    if detach:
        started = run_detached(paths)
        print_json(started.to_dict()) if settings.json else click.echo(started.describe())
        return
    from cli.foreground import run_here
    from cli.keeping import prepare_again

    tell_result(settings, run_here(settings, prepare_again(paths), paths, epoch).to_dict())
