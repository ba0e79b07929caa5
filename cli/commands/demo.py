"""`gradmux demo`: the comparison on the embedded emulator; no account needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradmux.cli.options import FAULTS_HELP, Settings, command, pass_settings
from gradmux.cli.output import print_json, set_up_logging, stderr, stdout

if TYPE_CHECKING:
    from rich.console import Console

    from gradmux.orchestrator.demo.contest import Contest, Size


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
    from gradmux.orchestrator.demo import contest

    set_up_logging(settings)
    held = _hold(settings, contest.QUICK if quick else contest.FULL, parse_faults(faults), console)
    print_json(held.to_dict()) if settings.json else tables.tell(held, stdout())


def _hold(settings: Settings, size: Size, faults: dict[str, float], console: Console) -> Contest:
    from gradmux.cli.progress import run_progress
    from gradmux.orchestrator.backends import open_place
    from gradmux.orchestrator.demo import contest
    from gradmux.orchestrator.runs.stopping import Stop, stop_on_signals

    jobs = contest.prepare(size, faults)
    pace = f"Lambda-like delays, {1 / size.time_scale:g} times as fast as life"
    console.print(f"Starting the emulator and {size.workers} workers ({pace}), then warming them up")
    stop = Stop()
    with open_place(jobs[0][1].config) as place, stop_on_signals(stop, console.print):
        return contest.hold(
            jobs, size, place, settings.home, lambda label, total: run_progress(console, label, total), stop
        )
