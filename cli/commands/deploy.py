"""`gradmux deploy`: workers, bucket and rights in the user's AWS account, made or brought up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stderr, stdout, warn
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.infra.aws.deploying import Deployment
    from gradmux.infra.aws.plan import Plan
    from gradmux.infra.aws.wishes import Wishes


class Reserved(click.ParamType[int]):
    """A number of calls, or "none" (0)."""

    name = "integer|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or value == "none":
            return 0 if value == "none" else value
        if not str(value).isascii() or not str(value).isdigit() or int(value) == 0:
            self.fail(f"{value!r} is neither a number of calls nor none", param, ctx)
        return int(value)


@command("deploy", example="gradmux deploy --memory 3008 --dry-run")
@click.option("--name", default="gradmux", show_default=True, help="Of the deployment; everything is named after it.")
@click.option("--memory", type=int, help="MB for each worker; 1,769 are one processor.  [at first: 2048]")
@click.option("--timeout", type=int, help="Seconds until Lambda ends a worker.  [at first: 60]")
@click.option("--tmp", type=int, help="MB of /tmp, where workers keep data sets.  [at first: 512]")
@click.option("--architecture", type=click.Choice(["x86_64", "arm64"]), help="  [at first: x86_64]")
@click.option("--reserved", type=Reserved(), help="Calls at a time for this function alone, and no more; or none.")
@click.option("--log-days", type=int, help="Days that logs are kept.  [at first: 14]")
@click.option("--keep-days", type=int, help="Days that a run's objects are kept; 0 for ever.  [at first: 90]")
@click.option(
    "--builder",
    type=click.Choice(["auto", "docker", "cloud"]),
    default="auto",
    show_default=True,
    help="Who builds the image: docker here, or CodeBuild.",
)
@click.option(
    "--requirements",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What your models need in the image beside torch.",
)
@click.option("--bucket", help="A bucket of your own, instead of a new one.")
@click.option("--role", metavar="ARN", help="A role of your own: makes the function alone, without a stack.")
@click.option("--image", metavar="URI", help='A finished image in your registry; "" for one that is built again.')
@click.option("--kms-key", metavar="ARN", help="The KMS key that encrypts the bucket.")
@click.option("--yes", is_flag=True, help="Do not ask before what deletes or shrinks something.")
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
@click.option("--policies", is_flag=True, help="Print the rights of workers and of clients, for an administrator.")
@pass_settings
def deploy_command(
    settings: Settings,
    name: str,
    memory: int | None,
    timeout: int | None,
    tmp: int | None,
    architecture: str | None,
    reserved: int | None,
    log_days: int | None,
    keep_days: int | None,
    builder: str,
    requirements: Path | None,
    bucket: str | None,
    role: str | None,
    image: str | None,
    kms_key: str | None,
    yes: bool,
    dry_run: bool,
    policies: bool,
) -> None:
    """Make a Lambda function, a bucket and their rights in your AWS account, or bring them up to date.

    Costs nothing while no job runs, but for what the bucket and the image registry store. Repeat it to go on after a
    failure; what is done is not done again. An option that is not given leaves what is deployed as it is.
    """
    from gradmux.infra.aws.account import account_errors
    from gradmux.infra.aws.deploying import read_requirements, rights
    from gradmux.infra.aws.settings import Architecture, Builder
    from gradmux.infra.aws.wishes import Wishes

    with account_errors():
        wishes = Wishes(
            name=name,
            architecture=None if architecture is None else Architecture(architecture),
            memory_mb=memory,
            timeout_s=timeout,
            tmp_mb=tmp,
            reserved=reserved,
            log_days=log_days,
            keep_days=keep_days,
            builder=Builder(builder),
            requirements=read_requirements(requirements),
            bucket=bucket,
            role=role,
            image=image,
            kms_key=kms_key,
        )
        if policies:  # always JSON: that is what IAM takes
            told, warning = rights(wishes)
            warn(warning)
            print_json(told)
        else:
            _deploy(settings, wishes, dry_run=dry_run, sure=yes)


def _deploy(settings: Settings, wishes: Wishes, *, dry_run: bool, sure: bool) -> None:
    from gradmux.cli.plans import print_plan, step_lines
    from gradmux.infra.aws.deploying import Deployment

    deployment = Deployment.planned(wishes)
    plan = deployment.plan
    if dry_run:
        print_json(deployment.to_dict()) if settings.json else print_plan(plan, "The plan:")
        return
    _ask(settings, plan, sure=sure)
    deployment.carry_out(step_lines(settings, plan))
    print_json(deployment.to_dict()) if settings.json else _tell(settings, deployment)


def _ask(settings: Settings, plan: Plan, *, sure: bool) -> None:
    """Tells what changes and what should be known. Raises ConfigError where a loss is not wanted, or no one can say."""
    console = stderr(settings)
    for line in (*(change.told() for change in plan.changes), *plan.notes):
        console.print(line, soft_wrap=True)
    if sure or not plan.losses:
        return
    told = "; ".join(change.told() for change in plan.losses)
    if settings.json or not sys.stdin.isatty():
        raise ConfigError(f"{told}: repeat with --yes if that is wanted")
    if not click.confirm("Is that wanted?", err=True):
        raise ConfigError("nothing was changed")


def _tell(settings: Settings, deployment: Deployment) -> None:
    stderr(settings).print("Deployed." if deployment.plan.steps else "Nothing to do: everything is as wanted.")
    console = stdout()
    console.print("Put this into your job files, and look with `gradmux doctor JOB.toml` whether all is well:\n")
    console.print('[cluster]\nbackend = "aws"')
    assert deployment.cluster is not None
    for key in ("function", "bucket"):
        console.print(f'{key} = "{deployment.cluster[key]}"')
