"""`gradmux doctor`: whether a job, and the backend where it would run, are fit for each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stdout

if TYPE_CHECKING:
    from gradmux.orchestrator.findings import Finding

SIGNS = {"ok": "ok     ", "warning": "warning", "failure": "FAILURE"}


@command("doctor", example="gradmux doctor job.toml")
@click.argument("job", type=click.Path(path_type=Path), required=False)
@click.option("--backend", help="Which to look at, instead of the job's (else aws).")
@click.option("--local", is_flag=True, help="The emulator: that of `gradmux local up`, or one of the doctor's own.")
@click.option("--name", default="gradmux", show_default=True, help="Of the deployment to look at, without a JOB.")
@click.option("--function", help="Name or ARN, instead of the job's or the deployment's.")
@click.option("--bucket", help="Instead of the job's or the deployment's.")
@click.option("--workers", type=click.IntRange(1), help="How many shall run at once, instead of the job's.")
@click.option("--compare", is_flag=True, help="Train a few steps of JOB here, in workers and in a plain torch loop.")
@click.pass_context
@pass_settings
def doctor_command(
    settings: Settings,
    ctx: click.Context,
    job: Path | None,
    backend: str | None,
    local: bool,
    name: str,
    function: str | None,
    bucket: str | None,
    workers: int | None,
    compare: bool,
) -> None:
    """Check credentials, endpoints, limits, function and bucket, for JOB when it is given; say what to do.

    With --compare, instead: whether workers (of the emulator) give JOB the weights of ordinary training, else code 3.

    Calls the function twice, and puts a small object into the bucket, which is deleted again. Exit code 0 when a job
    can run, 4 when only the account's limits are in its way, else 3.
    """
    from gradmux.orchestrator.doctor import examined
    from gradmux.orchestrator.findings import exit_code

    findings = []
    named = {"name": name, "function": function, "bucket": bucket}
    for finding in examined(
        settings.home, job, backend=backend, local=local, workers=workers, named=named, compare=compare
    ):
        findings.append(finding)
        if not settings.json:
            _show(finding)
    code = exit_code(findings)
    if settings.json:
        print_json({"findings": findings, "exit_code": code})
    ctx.exit(code)


def _show(finding: Finding) -> None:
    stdout().print(f"{SIGNS[finding.level]} {finding.check}: {finding.says}", soft_wrap=True)
    if finding.do:
        stdout().print(f"        -> {finding.do}", soft_wrap=True)
