"""`gradmux submit`: trains what a job file describes, in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from gradmux.cli.arguments import parse_faults
from gradmux.cli.numbers import HourUsd
from gradmux.cli.options import FAULTS_HELP, Settings, command, pass_settings
from gradmux.cli.output import print_json, set_up_logging, warn
from gradmux.cli.results import tell_result
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.runs.detach import run_detached
from gradmux.orchestrator.runs.ownership import distrust, files_of_job


def _print_schema(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from gradmux.orchestrator.job_file import job_schema

        print_json(job_schema())
        ctx.exit()


@command("submit", example="gradmux submit job.toml --set training.steps=50 --set 'scheme={name=\"gc\", s=3}'")
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key of the job file.")
@click.option(
    "--hour-usd", type=HourUsd(), help="V, what an hour of waiting is worth: cluster.hour_usd of the job file."
)
@click.option("--detach", is_flag=True, help="Train in a process of its own, which outlives this terminal.")
@click.option("--faults", default="", metavar="KIND=RATE,...", help=FAULTS_HELP)
@click.option(
    "--dry-run", is_flag=True, help="Check everything, tell what would run and what it would cost, invoke no worker."
)
@click.option(
    "--delays",
    metavar="PROFILE",
    help="With --dry-run: what calls take, a file that `gradmux probe` wrote, or a generator (aws: lambda-like).",
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of job files and exit.",
)
@pass_settings
def submit_command(
    settings: Settings,
    job: Path,
    overrides: tuple[str, ...],
    hour_usd: float | None,
    detach: bool,
    faults: str,
    dry_run: bool,
    delays: str | None,
) -> None:
    """Train the models that the file JOB describes; ends with their losses and where the weights lie.

    Ctrl-C saves the models and leaves (`gradmux resume` goes on), Ctrl-C again leaves at once.

    The cost that --dry-run tells is an estimate: one share of each model is computed here, and the job is played in the
    simulator, so that late and redundant work is counted. It says what it rests on; prices are those of `gradmux cost`.
    """
    from gradmux.orchestrator.backends import with_faults
    from gradmux.orchestrator.job_file import load_job

    set_up_logging(settings)
    if delays is not None and not dry_run:
        raise ConfigError("--delays says what an estimate rests on: it needs --dry-run")
    waiting = () if hour_usd is None else (f"cluster.hour_usd={hour_usd!r}",)
    config = with_faults(load_job(job, (*overrides, *waiting)), parse_faults(faults))
    warn(distrust(files_of_job(job, config)))  # what is in them runs from here on

    # What is wrong with the file has been told; from here on torch is imported, which takes seconds.
    from gradmux.cli.foreground import run_here
    from gradmux.orchestrator.materials import Materials
    from gradmux.orchestrator.prices import PRICES
    from gradmux.orchestrator.runs.keep import keep_job, nothing_left_of_refused
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.runs.tariff import prices_at
    from gradmux.orchestrator.store import open_bucket

    counted = dry_run or config.cluster.max_cost_usd is not None
    prices = prices_at(settings.home, config.cluster) if counted else PRICES
    prepared = prepare_job(config, Materials(), job.parent, open_bucket)
    if dry_run:
        from gradmux.cli.dry_run import tell_plan
        from gradmux.orchestrator.estimate.job import estimate_job

        tell_plan(settings, prepared, estimate_job(prepared, prices, delays))
        return
    paths = keep_job(prepared, settings.home, job.parent)
    if detach:
        started = run_detached(paths)
        print_json(started.to_dict()) if settings.json else click.echo(started.describe())
        return
    with nothing_left_of_refused(paths):
        result = run_here(settings, prepared, paths)
    tell_result(settings, result.to_dict())
