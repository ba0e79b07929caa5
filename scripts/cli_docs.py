"""Writes docs/cli.md from the help texts of the commands themselves: `make docs`. A test holds the file to them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gradmux.cli.main import COMMANDS, gradmux
from gradmux.cli.options import HELP

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 100
HEAD = """# The command line

Written by `make docs` from the commands' own help texts.

Exit codes: 0 done, 2 usage or configuration, 3 credentials or preflight, 4 quota, 5 interrupted but resumable,
1 anything else, 130 on Ctrl-C.
"""


def render() -> str:
    """The whole page."""
    return HEAD + "".join(_section(name, command) for name, command in _commands())


def _commands() -> Iterator[tuple[str, click.Command]]:
    yield "gradmux", gradmux
    context = click.Context(gradmux)
    for name in COMMANDS:
        command = gradmux.get_command(context, name)
        assert command is not None
        yield f"gradmux {name}", command
        if isinstance(command, click.Group):
            yield from ((f"gradmux {name} {sub}", command.commands[sub]) for sub in command.commands)


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, terminal_width=WIDTH, **HELP)
    return f"\n## {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        shown, known = render().splitlines(), PAGE.read_text(encoding="utf-8").splitlines()
        if stale := list(difflib.unified_diff(known, shown, "docs/cli.md", "the commands", lineterm="")):
            raise SystemExit("\n".join(["docs/cli.md is out of date: run `make docs`", *stale]))
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render(), encoding="utf-8")
        print(f"wrote {PAGE}")
