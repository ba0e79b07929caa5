"""`gradmux logs`: what a run said, and says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json

LOOK_S = 0.2


@command("logs", example="gradmux logs digits-1 -f")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until nothing runs it any more.")
@pass_settings
def logs_command(settings: Settings, run: str, follow: bool) -> None:
    """Print the log of RUN: one line a round, checkpoints, troubles, and how it ended."""
    from gradmux.orchestrator.runs.lock import is_held
    from gradmux.orchestrator.runs.paths import find_run

    paths = find_run(settings.home, run)
    lines: list[str] = []
    tail, going_on = _Tail(paths.log), True
    while going_on:
        going_on = follow and is_held(paths.lock)
        for line in tail.read():
            lines.append(line) if settings.json else click.echo(line)
        if going_on:
            time.sleep(LOOK_S)
    if settings.json:
        print_json({"run": paths.run, "lines": lines})


class _Tail:
    """The whole lines of a file that may still grow, or not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[str]:
        """What is new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from whole.decode(errors="replace").splitlines()
