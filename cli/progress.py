"""A progress bar for one run, on stderr: jobs decoded, the newest loss of each model.

Knows no scheme. Read next: `commands/submit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from gradmux.orchestrator.record import Decoded

SHOWN_LOSSES = 4


@contextmanager
def run_progress(console: Console, label: str, jobs: int) -> Iterator[Callable[[Decoded], None]]:
    """While open, shows how many of `jobs` are done; call what it yields after each one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("gradients"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[loss]}", markup=False),
    )
    losses: dict[int, float] = {}
    steps: dict[int, int] = {}
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=jobs, loss="")

        def done(decoded: Decoded) -> None:
            losses[decoded.model], steps[decoded.model] = decoded.loss, decoded.step + decoded.steps
            newest = " ".join(f"{losses[model]:.3f}" for model in sorted(losses)[:SHOWN_LOSSES])
            progress.update(task, completed=sum(steps.values()), loss=f"loss {newest}")

        yield done


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """While open, shows how many of `total` are done; call what it yields with the number."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(what), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
