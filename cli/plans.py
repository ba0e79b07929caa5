"""The plans of `deploy` and `destroy` as people read them, and each step as it begins.

Read next: `commands/deploy.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradmux.cli.options import Settings
from gradmux.cli.output import stderr, stdout
from gradmux.infra.aws.plan import Plan, Step, about

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
    for change in plan.changes:
        console.print(f"  {change.told()}", soft_wrap=True)
    for number, step in enumerate(plan.steps, 1):
        console.print(f"{number:3}. {step.title} {about(step)}\n     {step.why}", soft_wrap=True)
    for line in plan.notes:
        console.print(f"note: {line}", soft_wrap=True)
    for line in plan.leaves:
        console.print(f"stays: {line}", soft_wrap=True)
