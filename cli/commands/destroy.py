"""`gradmux destroy`: removes what `gradmux deploy` made; the data only when that is asked for."""

from __future__ import annotations

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stdout


@command("destroy", example="gradmux destroy --delete-data --dry-run")
@click.option("--name", default="gradmux", show_default=True, help="Of the deployment.")
@click.option("--delete-data", is_flag=True, help="The bucket too, with every version of everything in it.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, remove nothing.")
@pass_settings
def destroy_command(settings: Settings, name: str, delete_data: bool, dry_run: bool) -> None:
    """Remove function, roles, images, logs and build project from your AWS account, and tell what stays.

    Only what `deploy` made is touched: never a role, bucket or function of your own.
    """
    from gradmux.cli.plans import print_plan, step_lines
    from gradmux.infra.aws.account import account_errors
    from gradmux.infra.aws.deploying import Deployment

    with account_errors():
        removal = Deployment.removal(name, delete_data=delete_data)
        plan = removal.plan
        if not dry_run:
            removal.carry_out(step_lines(settings, plan))
    if settings.json:
        print_json(plan.to_json())
    elif dry_run:
        print_plan(plan, "The plan:")
    else:
        console = stdout()
        console.print("Removed." if plan.steps else "There was nothing to remove.")
        for line in plan.leaves:
            console.print(f"stays: {line}", soft_wrap=True)
