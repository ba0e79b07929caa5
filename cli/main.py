"""The entry of `gradmux`: finds the command, runs it, and turns what ended it into one line and an exit code.

Knows no command from inside; each is a file of `commands/`, imported when it is asked for. Read next: `options.py`.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TextIO, cast

import click

from gradmux.cli.options import HELP, Settings, common_options
from gradmux.cli.output import report_error
from gradmux.orchestrator.errors import GradmuxError, SchemeFault
from gradmux.orchestrator.streams import Checked, Lasting, fill_standard_streams, spell_otherwise

COMMANDS = (
    "demo",
    "submit",
    "list",
    "status",
    "logs",
    "cancel",
    "resume",
    "results",
    "cost",
    "replay",
    "replay-task",
    "probe",
    "simulate",
    "tune",
    "schemes",
    "profile",
    "data",
    "local",
    "deploy",
    "destroy",
    "doctor",
    "conform",
    "completion",
)
"""In the order of `gradmux --help`; each names its file and the function in it."""
INTERRUPTED = 130
TERMINATED = 143


class LazyGroup(click.Group):
    """Imports a command's file when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"gradmux.cli.commands.{name}"), f"{name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(
                f"there is no command {args[0]!r}{_closest(args[0])}; `gradmux --help` lists them", ctx
            )
        return super().resolve_command(ctx, args)


def _closest(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


@click.group(cls=LazyGroup, context_settings={**HELP, "max_content_width": 110})
@click.version_option(package_name="gradmux", prog_name="gradmux")
@common_options
def gradmux() -> None:
    """Train several PyTorch models side by side on serverless workers; slow workers cost nothing, gradients stay exact.

    Start with `gradmux demo`: it needs no account.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and gives its exit code: 0 done, 2 usage or configuration, others as `errors.py` says."""
    settings = Settings()
    try:
        code = gradmux.main(args=list(arguments), prog_name="gradmux", standalone_mode=False, obj=settings)
    except click.ClickException as error:
        return _told(error.format_message(), error.exit_code, arguments)
    except GradmuxError as error:
        _show_cause(error, settings)
        return _told(str(error), error.exit_code, arguments)
    except click.Abort as error:
        if isinstance(error.__cause__, EOFError):  # click takes a file's end for that of the terminal's input
            raise error.__cause__ from None
        return _told("interrupted", INTERRUPTED, arguments)
    except KeyboardInterrupt:
        return _told("interrupted", INTERRUPTED, arguments)
    except Exception as error:
        return _blamed(error, settings, arguments)
    return code if isinstance(code, int) else 0


def _told(message: str, exit_code: int, arguments: Sequence[str]) -> int:
    report_error(message, exit_code, as_json="--json" in arguments)
    return exit_code


def _show_cause(error: GradmuxError, settings: Settings) -> None:
    """With -v the traceback of what a scheme has raised."""
    if settings.verbosity > 0 and isinstance(error, SchemeFault) and error.__cause__ is not None:
        from gradmux.orchestrator.scheme_errors import whole

        click.echo(whole(error.__cause__), err=True, nl=False)


def _blamed(error: Exception, settings: Settings, arguments: Sequence[str]) -> int:
    """Tells an exception that is not ours; ours goes on."""
    from gradmux.orchestrator.scheme_errors import blame, whole

    line = blame(error)
    if not line:
        raise error
    if settings.verbosity > 0:
        click.echo(whole(error), err=True, nl=False)
    return _told(line, GradmuxError.exit_code, arguments)


def _terminate(signum: int, frame: FrameType | None) -> None:
    sys.exit(TERMINATED)


def main() -> None:
    """The console script. SIGTERM unwinds like an exception, so that no process of ours stays behind."""
    fill_standard_streams()
    spell_otherwise(sys.stdout, sys.stderr)
    sys.stdout = cast(TextIO, Checked(sys.stdout))
    sys.stderr = cast(TextIO, Lasting(sys.stderr))
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:]))
