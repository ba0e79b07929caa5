"""How results and errors reach the user: a table or one JSON document on stdout, everything else on stderr.

Knows no command. Libraries of ours do not print; only `cli` does. Read next: any file of `commands/`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from gradmux.cli.options import Settings
from gradmux.orchestrator.streams import OutputLost

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 140


def print_json(document: Any) -> None:
    """The whole of stdout with --json; NaN and infinity become null, numpy's numbers plain ones."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    click.echo(orjson.dumps(document, option=options, default=_plain), nl=False)


def _plain(value: Any) -> Any:
    from dataclasses import asdict, is_dataclass
    from pathlib import Path

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def report_error(message: str, exit_code: int, *, as_json: bool) -> None:
    """One line per mistake on stderr, and with --json a document on stdout as well."""
    for line in message.splitlines():
        click.echo(f"gradmux: {line}", err=True)
    if as_json:
        with suppress(OutputLost):  # one line has been told, and there is nowhere else to tell the other
            print_json({"error": message, "exit_code": exit_code})


def warn(reason: str) -> None:
    """Tells it on standard error, if there is one; never silenced, and never in the way."""
    if reason:
        click.echo(f"gradmux: warning: {reason}", err=True)


def stdout() -> Console:
    """Where results go."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, width=_width(sys.stdout))


def stderr(settings: Settings) -> Console:
    """Where progress goes; silent with --quiet."""
    from rich.console import Console

    quiet = settings.verbosity < 0
    return Console(file=sys.stderr, highlight=False, markup=False, quiet=quiet, width=_width(sys.stderr))


def _width(stream: TextIO) -> int | None:
    """A terminal's own width; a fixed one for files and pipes."""
    return None if stream.isatty() else PIPE_WIDTH


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", right: Sequence[str] = ()
) -> Table:
    """A table of plain texts whose columns named in `right` are set flush right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def facts(pairs: Sequence[tuple[str, str]]) -> Table:
    """Labels and what they say, without a head."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 3, 0, 0))
    for label, text in pairs:
        made.add_row(Text(label, style="dim"), Text(text))
    return made


def set_up_logging(settings: Settings) -> None:
    """Our log lines to stderr: warnings usually, rounds with -v, all with -vv, only errors with -q."""
    level = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}.get(settings.verbosity, logging.DEBUG)
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("gradmux")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
