"""What every command shares: --json, -q/-v, --home, and a help text that ends with an example.

Knows no command. Read next: `output.py`, or any file of `commands/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""of every context that shows help: click keeps what it was asked for first"""
FAULTS_HELP = (
    "Local backend: share of invocations that go wrong, by kind: crash, error, oom, timeout, init, throttle, 500, 503, "
    "expired, truncate, corrupt, stale, and duplicate (with invoke = event); S3 requests: slowdown, lost. "
    "Example: crash=0.02,throttle=0.05,slowdown=0.1"
)

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(slots=True)
class Settings:
    """The common options, wherever on the command line they stood."""

    json: bool = False
    verbosity: int = 0
    """-1 quiet, 0 usual, 1 and more: each -v"""
    home_option: Path | None = None

    @property
    def home(self) -> Path:
        """Where runs and the emulator's state lie: --home, GRADMUX_HOME, or the user's data folder."""
        if self.home_option is not None:
            return self.home_option
        from gradmux.orchestrator.runs.paths import default_home

        return default_home()


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Settings).json = True


def _set_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Settings).verbosity = -1


def _add_verbose(ctx: click.Context, _: click.Parameter, value: int) -> None:
    ctx.ensure_object(Settings).verbosity += value


def _set_home(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(Settings).home_option = value


def common_options(function: Function) -> Function:
    """Adds the options that every command accepts; they end up in the `Settings` of the context."""
    options = [
        click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help="Print one JSON document."),
        click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_set_quiet, help="No progress."),
        click.option(
            "-v", "--verbose", count=True, expose_value=False, callback=_add_verbose, help="Log more (-vv: all)."
        ),
        click.option(
            "--home",
            type=click.Path(file_okay=False, path_type=Path),
            expose_value=False,
            callback=_set_home,
            help="Where runs are kept (else GRADMUX_HOME, else the user's data folder).",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


class ExampleCommand(click.Command):
    """A command whose help ends with an example."""

    example: str = ""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("Example:")
        with formatter.indentation():
            for line in self.example.splitlines():
                formatter.write_text(line)


def command(name: str, *, example: str) -> Callable[[Callable[..., Any]], ExampleCommand]:
    """Makes a function a command with the common options; `example` is one command line or a few, by line."""

    def decorate(function: Callable[..., Any]) -> ExampleCommand:
        made = click.command(name, cls=ExampleCommand)(common_options(function))
        made.example = example
        return made

    return decorate
