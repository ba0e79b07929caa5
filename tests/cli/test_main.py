"""The conventions that hold for every command: exit codes, one line per error, --json, examples, a quick start."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from cli.main import COMMANDS
from cli.main import gradmux as group
from cli.options import HELP, ExampleCommand
from tests.cli.conftest import Gradmux


def leaf_commands() -> list[tuple[str, click.Command]]:
    """Every command that does something, with its full name."""
    context = click.Context(group)
    found = []
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", command.commands[sub]) for sub in command.commands]
        else:
            found.append((name, command))
    return found


def test_help_starts_without_the_heavy_imports() -> None:
    code = (
        "import sys; from cli.main import run; code = run(['--help']);"
        "heavy = {'torch', 'numpy', 'pydantic', 'boto3', 'rich'} & set(sys.modules); sys.exit(code or len(heavy))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert "demo" in ran.stdout


@pytest.mark.parametrize(("name", "command"), leaf_commands(), ids=[name for name, _ in leaf_commands()])
def test_every_command_has_help_with_an_example_and_the_common_options(name: str, command: click.Command) -> None:
    assert isinstance(command, ExampleCommand)
    assert "gradmux" in command.example
    text = command.get_help(click.Context(command, info_name=name, **HELP))
    for option in ("--json", "--quiet", "--verbose", "--home"):
        assert option in text
    assert f"Example:\n  {command.example.splitlines()[0][:60]}" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sbmit"], "there is no command 'sbmit', did you mean 'submit'?"),
        (["schemes", "mgc"], "unknown scheme 'mgc'"),
        (["schemes", "--jsno"], "No such option"),
        (["submit"], "Missing argument"),
        (["submit", "none.toml"], "none.toml: there is no such job file"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(gradmux: Gradmux, arguments: list[str], message: str) -> None:
    ran = gradmux(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("gradmux: ")
    assert message in ran.err


def test_with_json_an_error_is_a_document_too(gradmux: Gradmux) -> None:
    ran = gradmux("schemes", "mgc", "--json")
    assert ran.document["exit_code"] == ran.code == 2
    assert "unknown scheme" in ran.document["error"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(gradmux: Gradmux, shell: str) -> None:
    ran = gradmux("completion", shell)
    assert ran.code == 0
    assert "_GRADMUX_COMPLETE" in ran.out


def test_version(gradmux: Gradmux) -> None:
    ran = gradmux("--version")
    assert ran.code == 0
    assert ran.out.startswith("gradmux")
