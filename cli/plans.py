"""The plans of `deploy` and `destroy` as people read them, and each step as it begins.

Read next: `commands/deploy.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradmux.cli.options import Settings
from gradmux.cli.output import stderr, stdout
from gradmux.infra.aws.plan import Call, CloudBuild, DockerBuild, DockerPush, EmptyBucket, Plan, Step, Wait

if TYPE_CHECKING:
    from gradmux.infra.aws.execute import OnStep


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
