"""The user's AWS account as the commands see it: the door to it, its errors as ours, steps as lines.

Imports no torch. Read next: `commands/deploy.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3

from gradmux.cli.options import Settings
from gradmux.cli.output import stderr, stdout
from gradmux.infra.aws.door import BotoDoor
from gradmux.infra.aws.errors import AwsError, SettingsError, StepFailed
from gradmux.infra.aws.plan import Call, CloudBuild, DockerBuild, DockerPush, EmptyBucket, Plan, Step, Wait
from gradmux.orchestrator.aws import new_session
from gradmux.orchestrator.errors import ConfigError, GradmuxError, PreflightError

if TYPE_CHECKING:
    from gradmux.infra.aws.execute import OnStep


@contextmanager
def account_errors() -> Iterator[None]:
    """Within it, what an account refuses is ours to tell: exit code 2 for settings that cannot be, 1 for a step that
    failed, else 3."""
    try:
        yield
    except SettingsError as error:
        raise ConfigError(str(error)) from error
    except StepFailed as error:
        raise GradmuxError(str(error)) from error
    except AwsError as error:
        raise PreflightError(str(error)) from error


def open_account() -> BotoDoor:
    """AWS, as its own tools would find it: profile, variables, endpoints."""
    return BotoDoor(boto3.Session(botocore_session=new_session()))


def step_lines(settings: Settings, plan: Plan) -> OnStep:
    """Prints each step as it begins, on standard error."""
    console, total = stderr(settings), len(plan.steps)

    def begin(number: int, step: Step) -> None:
        console.print(f"[{number}/{total}] {step.title}: {step.why}", soft_wrap=True)

    return begin


def print_plan(plan: Plan, heading: str) -> None:
    """The plan for people: each step with what it is about, and why."""
    console = stdout()
    console.print(heading if plan.steps else "Nothing to do: everything is as wanted.")
    for number, step in enumerate(plan.steps, 1):
        console.print(f"{number:3}. {step.title} {_about(step)}\n     {step.why}", soft_wrap=True)
    for line in plan.leaves:
        console.print(f"stays: {line}", soft_wrap=True)


def _about(step: Step) -> str:
    """What a step is about, in a few words."""
    match step:
        case DockerBuild() | DockerPush():
            return step.image
        case EmptyBucket():
            return step.bucket
        case CloudBuild():
            return str(step.arguments.get("projectName", ""))
        case Call() | Wait():
            return _subject(step.arguments)


def _subject(arguments: Mapping[str, Any]) -> str:
    names = ("StackName", "FunctionName", "repositoryName", "logGroupName", "Key", "Bucket", "Resource")
    return next((str(arguments[name]) for name in names if name in arguments), "")
