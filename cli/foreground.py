"""Runs a run in this process, with progress, until it is done or somebody wants it to end.

Knows no command: `submit` and `resume` both end here. Read next: `orchestrator/runs/train.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from gradmux.cli.options import Settings
from gradmux.cli.output import stderr

if TYPE_CHECKING:
    from gradmux.orchestrator.results import RunResult
    from gradmux.orchestrator.runs.paths import RunPaths
    from gradmux.orchestrator.runs.prepare import Prepared


def run_here(settings: Settings, prepared: Prepared, paths: RunPaths, epoch: int | None = None) -> RunResult:
    """Trains to the end. Ctrl-C once saves and leaves, twice leaves. `epoch`: the life's number, if it has one already.

    Raises: what ends a run (`gradmux.orchestrator.errors`).
    """
    from gradmux.cli.progress import run_progress
    from gradmux.orchestrator.errors import Diverged, RunStopped
    from gradmux.orchestrator.runs.train import run_watched

    console = stderr(settings)
    try:
        return run_watched(prepared, paths, partial(run_progress, console), console.print, epoch).run
    except Diverged:
        raise  # it would diverge again
    except RunStopped as stopped:
        going_on = f"`gradmux resume {paths.run}`"
        console.print(f"{paths.run} can go on: {going_on}")
        if console.quiet and going_on[:-1] not in str(stopped):
            line, newline, stack = str(stopped).partition("\n")
            stopped.args = (f"{line}; {going_on} goes on{newline}{stack}",)  # all that is said
        raise
    except KeyboardInterrupt:
        click.echo(f"{paths.run} was left at once: `gradmux resume {paths.run}` goes on", err=True)
        raise
