"""`gradmux demo`: the comparison on the embedded emulator; no account needed."""

from __future__ import annotations

from functools import partial

import click

from gradmux.cli.options import FAULTS_HELP, Settings, command, pass_settings
from gradmux.cli.output import print_json, set_up_logging, stderr, stdout


@command("demo", example="gradmux demo --json > demo.json")
@click.option("--quick", is_flag=True, help="A few seconds instead of a minute or two: fewer workers, fewer steps.")
@click.option("--faults", default="", metavar="KIND=RATE,...", help=FAULTS_HELP)
@pass_settings
def demo_command(settings: Settings, quick: bool, faults: str) -> None:
    """Train 4 models on emulated Lambda workers, some of them slow, under 6 schemes; compare what was measured."""
    console = stderr(settings)
    console.print("Importing PyTorch and preparing scikit-learn's handwritten digits")
    from gradmux.cli import demo_tables as tables
    from gradmux.cli.arguments import parse_faults
    from gradmux.cli.progress import run_progress
    from gradmux.orchestrator.demo import contest

    set_up_logging(settings)
    size = contest.QUICK if quick else contest.FULL
    held = contest.run(size, parse_faults(faults), settings.home, partial(run_progress, console), console.print)
    print_json(held.to_dict()) if settings.json else tables.tell(held, stdout())
