"""`gradmux deploy`: workers, bucket and rights in the user's AWS account, made or brought up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stderr, stdout, warn
from gradmux.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from gradmux.infra.aws.observe import Observed
    from gradmux.infra.aws.settings import DeploySettings


@command("deploy", example="gradmux deploy --memory 3008 --dry-run")
@click.option("--name", default="gradmux", show_default=True, help="Of the deployment; everything is named after it.")
@click.option("--memory", default=2048, show_default=True, help="MB for each worker; 1,769 are one processor.")
@click.option("--timeout", default=60, show_default=True, help="Seconds until Lambda ends a worker.")
@click.option("--tmp", default=512, show_default=True, help="MB of /tmp, where workers keep data sets.")
@click.option("--architecture", type=click.Choice(["x86_64", "arm64"]), default="x86_64", show_default=True)
@click.option("--reserved", type=int, help="Calls at a time for this function alone, and no more.")
@click.option("--log-days", default=14, show_default=True, help="Days that logs are kept.")
@click.option("--keep-days", default=90, show_default=True, help="Days that a run's objects are kept; 0 for ever.")
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
@click.option("--image", metavar="URI", help="A finished image in your registry.")
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
@click.option("--policies", is_flag=True, help="Print the rights of workers and of clients, for an administrator.")
@pass_settings
def deploy_command(
    settings: Settings,
    name: str,
    memory: int,
    timeout: int,
    tmp: int,
    architecture: str,
    reserved: int | None,
    log_days: int,
    keep_days: int,
    builder: str,
    requirements: Path | None,
    bucket: str | None,
    role: str | None,
    image: str | None,
    dry_run: bool,
    policies: bool,
) -> None:
    """Make a Lambda function, a bucket and their rights in your AWS account, or bring them up to date.

    Costs nothing while no job runs, but for what the bucket and the image registry store. Repeat it to go on after a
    failure; what is done is not done again.
    """
    from gradmux.infra.aws.account import account_errors
    from gradmux.infra.aws.settings import Architecture, Builder, DeploySettings

    with account_errors():
        wanted = DeploySettings(
            name=name,
            architecture=Architecture(architecture),
            memory_mb=memory,
            timeout_s=timeout,
            tmp_mb=tmp,
            reserved=reserved,
            log_days=log_days,
            keep_days=keep_days,
            builder=Builder(builder),
            requirements=_read(requirements),
            bucket=bucket,
            role=role,
            image=image,
        )
        _print_policies(wanted) if policies else _deploy(settings, wanted, dry_run=dry_run)


def _read(requirements: Path | None) -> str:
    if requirements is None:
        return ""
    try:
        return requirements.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{requirements}: cannot be read: {error}") from error


def _print_policies(wanted: DeploySettings) -> None:
    """Always JSON: that is what IAM takes. Where there are no credentials yet, placeholders stand for what they say."""
    from gradmux.infra.aws.account import open_account
    from gradmux.infra.aws.errors import AwsError
    from gradmux.infra.aws.names import Account, Names
    from gradmux.infra.aws.observe import find_account
    from gradmux.infra.aws.template import policies

    door = open_account()
    try:
        account = find_account(door)
    except AwsError as error:
        account = Account("<account>", door.region or "<region>")
        warn(f"{error}; put in what <account>{'' if door.region else ' and <region>'} stand for")
    names = Names(wanted.name, account)
    print_json(policies(names, wanted.bucket or names.bucket))


def _deploy(settings: Settings, wanted: DeploySettings, *, dry_run: bool) -> None:
    from gradmux.cli.plans import print_plan, step_lines
    from gradmux.infra.aws.account import open_account
    from gradmux.infra.aws.direct_plan import plan_direct
    from gradmux.infra.aws.docker import DockerCli
    from gradmux.infra.aws.execute import Executor
    from gradmux.infra.aws.image import image_source
    from gradmux.infra.aws.observe import observe
    from gradmux.infra.aws.stack_plan import plan_stack

    source = image_source(wanted.architecture, wanted.requirements)
    door, docker = open_account(), DockerCli()
    observed = observe(door, wanted.name)
    make = plan_stack if wanted.role is None else plan_direct
    plan = make(wanted, observed, source, docker.architecture())
    result = _result(wanted, observed)
    if dry_run:
        print_json({**plan.to_json(), **result}) if settings.json else print_plan(plan, "The plan:")
        return
    Executor(door, step_lines(settings, plan), docker, source).run(plan, wanted.name)
    if settings.json:
        print_json({**plan.to_json(), **result})
    else:
        _tell(settings, result, changed=bool(plan.steps))


def _result(wanted: DeploySettings, observed: Observed) -> dict[str, Any]:
    """What a job file needs to know."""
    names, stack = observed.names, observed.stack
    used = stack.parameters.get("BucketName") if stack else None
    return {
        "function": names.function,
        "bucket": used or wanted.bucket or names.bucket,
        "region": names.account.region,
        "account": names.account.id,
    }


def _tell(settings: Settings, result: dict[str, Any], *, changed: bool) -> None:
    stderr(settings).print("Deployed." if changed else "Nothing to do: everything is as wanted.")
    console = stdout()
    console.print("Put this into your job files, and look with `gradmux doctor JOB.toml` whether all is well:\n")
    console.print('[cluster]\nbackend = "aws"')
    for key in ("function", "bucket"):
        console.print(f'{key} = "{result[key]}"')
