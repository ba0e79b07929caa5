"""`gradmux cancel`: ends a run, and says what can still be billed."""

from __future__ import annotations

import click

from gradmux.cli.numbers import FiniteFloat
from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json, stderr


@command("cancel", example="gradmux cancel digits-1")
@click.argument("run")
@click.option("--wait", "wait_s", default=960.0, show_default=True, type=FiniteFloat(0), help="Seconds, at most.")
@pass_settings
def cancel_command(settings: Settings, run: str, wait_s: float) -> None:
    """Cancel RUN: workers that have not begun do not compute, its process saves the models and ends.

    Returns when nothing is in flight any more, or says what still runs and for how long it can be billed. `gradmux
    resume` takes a cancelled run up again.
    """
    from gradmux.orchestrator.runs.cancelling import cancel, tell_workers
    from gradmux.orchestrator.runs.paths import find_run

    paths = find_run(settings.home, run)
    if not paths.result.exists():
        stderr(settings).print(f"Cancelling {paths.run}")
    cancelled = cancel(paths, lambda life: tell_workers(paths, life), wait_s)
    print_json(cancelled.to_dict()) if settings.json else click.echo(cancelled.describe())
