"""`gradmux resume`: goes on with a run that was stopped, cancelled or killed."""

from __future__ import annotations

import click

from gradmux.cli.numbers import FiniteFloat
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, set_up_logging, stderr


@command("resume", example="gradmux resume digits-1 --detach")
@click.argument("run")
@click.option(
    "--max-cost-usd",
    type=FiniteFloat(0, min_open=True),
    metavar="USD",
    help="What the run may cost in all, from now on (cluster.max_cost_usd).",
)
@click.option(
    "--deadline-s",
    type=FiniteFloat(0, min_open=True),
    metavar="S",
    help="How long a round may take, from now on (scheme.deadline_s).",
)
@click.option("--detach", is_flag=True, help="Train in a process of its own, which outlives this terminal.")
@click.option("--epoch", type=int, hidden=True, help="The number that this life was given.")
@pass_settings
def resume_command(
    settings: Settings,
    run: str,
    max_cost_usd: float | None,
    deadline_s: float | None,
    detach: bool,
    epoch: int | None,
) -> None:
    """Go on with RUN (a name, its folder, or s3://BUCKET/runs/NAME) from its last checkpoint, whatever ended it.

    It needs nothing but the run's folder. A run on AWS keeps its folder in its bucket, too, and so can be resumed on
    another machine: NAME is what its file `store-name` says. With a fractional code the weights are, bit for bit, those
    of a run that was never stopped; a cyclic or dft code decodes in the order of arrival, so they agree up to rounding.
    """
    from gradmux.cli.output import warn
    from gradmux.cli.results import tell_result
    from gradmux.orchestrator.runs.detach import run_detached
    from gradmux.orchestrator.runs.resuming import find_again, take_up
    from gradmux.orchestrator.runs.status import read_result

    set_up_logging(settings)
    paths = find_again(run, settings.home)
    if paths.result.exists():
        stderr(settings).print(f"{paths.run} is done already; this is what it came to")
        tell_result(settings, read_result(paths))
        return
    warn(take_up(paths, max_cost_usd, deadline_s))
    if detach:
        started = run_detached(paths)
        print_json(started.to_dict()) if settings.json else click.echo(started.describe())
        return
    from gradmux.cli.foreground import run_here
    from gradmux.orchestrator.runs.keep import prepare_again

    tell_result(settings, run_here(settings, prepare_again(paths), paths, epoch).to_dict())
