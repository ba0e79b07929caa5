"""`gradmux conform`: whether an endpoint does what gradmux assumes of AWS; a report that can be sent to us."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stdout
from gradmux.orchestrator.errors import ConfigError, PreflightError


@command("conform", example="gradmux conform --local")
@click.option("--local", is_flag=True, help="An emulator of its own.")
@click.option("--function", default="", help="A worker of ours: name or ARN.")
@click.option("--bucket", default="", help="A bucket to put small objects into; they are deleted again.")
@click.option("--lambda-url", help="Of another Lambda endpoint than the one AWS's own tools find.")
@click.option("--s3-url", help="The same for S3.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the report there, as JSON.")
@click.pass_context
@pass_settings
def conform_command(
    settings: Settings,
    ctx: click.Context,
    local: bool,
    function: str,
    bucket: str,
    lambda_url: str | None,
    s3_url: str | None,
    report: Path | None,
) -> None:
    """Try every assumption about Lambda and S3 at an endpoint: limits, refusals, logs, conditions, listings, clocks.

    Takes minutes and costs cents. Without --function S3 alone is tried, without --bucket Lambda alone. Exit code 0
    where all is as assumed, else 3.
    """
    from gradmux.infra.aws.conform import Place, State, conform, document
    from gradmux.infra.aws.conform.report import line, write
    from gradmux.infra.local.examine import emulated

    if not (local or function or bucket):
        raise ConfigError("say what to try: --function, --bucket, both, or --local")
    results = []
    with emulated() if local else nullcontext(Place.of_user(function, bucket, lambda_url, s3_url)) as place:
        for result in conform(place):
            results.append(result)
            if not settings.json:
                stdout().print(line(result), soft_wrap=True)
        told = document(place, results)
    if report is not None:
        write(told, report)
    if settings.json:
        print_json(told)
    ctx.exit(PreflightError.exit_code if any(result.state is State.DIFFERS for result in results) else 0)
