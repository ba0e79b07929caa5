"""How the comparison is told: one row a scheme, then where everything lies.

Knows only the measured numbers. Read next: `contest.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gradmux.cli.output import facts, table

if TYPE_CHECKING:
    from rich.console import Console

    from gradmux.orchestrator.demo.contest import Contest, Entry


def tell(contest: Contest, console: Console) -> None:
    """Prints the table and what it means."""
    names = [model.name for model in contest.entries[0].result.models]
    numbers = ("load", "time s", "of uncoded", "billed s", *names)
    columns = ("scheme", "parameters", *numbers)
    rows = [_row(entry, contest.uncoded_s) for entry in contest.entries]
    console.print()
    console.print(table(columns, rows, right=numbers))
    console.print(
        "load: largest share of a batch that one worker computes in a round; last columns: test accuracy, %\n"
    )
    console.print(facts(_exactness(contest) + _places(contest)))


def _row(entry: Entry, uncoded_s: float) -> tuple[str, ...]:
    result = entry.result
    return (
        entry.contestant.label,
        entry.contestant.parameters,
        f"{result.load:.4f}",
        f"{result.wall_s:.2f}",
        f"{result.wall_s / uncoded_s:.2f}",
        f"{result.billed_s:.1f}",
        *(f"{100 * model.eval['accuracy']:.1f}" for model in result.models),
    )


def _exactness(contest: Contest) -> list[tuple[str, str]]:
    results = [entry.result for entry in contest.entries]
    difference = max(entry.weight_difference for entry in contest.entries)
    residual = max(result.max_residual for result in results)
    amplification = max(result.max_amplification for result in results)
    return [
        ("final weights", f"differ from ordinary training on the same batches by at most {difference:.1e} (relative)"),
        ("decodes", f"residual at most {residual:.1e}, amplification at most {amplification:.2f}"),
    ]


def _places(contest: Contest) -> list[tuple[str, str]]:
    runs = [entry.result for entry in contest.entries]
    return [
        ("runs", str(runs[0].record.parent.parent)),
        ("", "  ".join(run.run for run in runs)),
        ("in each", f"{runs[0].record.name}, {_relative(runs[0].models[0].checkpoint, runs[0].record)}, ..."),
    ]


def _relative(path: Path, record: Path) -> str:
    return str(path.relative_to(record.parent))
