"""The conventions that hold for every command: exit codes, one line per error, --json, examples, a quick start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.types import FloatParamType

from gradmux.cli.main import COMMANDS
from gradmux.cli.main import gradmux as group
from gradmux.cli.options import HELP, ExampleCommand, Settings
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
        "import sys; from gradmux.cli.main import run; code = run(['--help']);"
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


def float_options() -> list[tuple[str, click.Option]]:
    """Every option of every command whose value is a number with a fraction."""
    options = [(name, option) for name, command in leaf_commands() for option in command.params]
    return [(name, o) for name, o in options if isinstance(o, click.Option) and isinstance(o.type, FloatParamType)]


def test_float_options_are_found() -> None:
    assert {"resume", "simulate", "tune", "profile show", "local up", "cancel"} <= {name for name, _ in float_options()}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e999"])
@pytest.mark.parametrize(("name", "option"), float_options(), ids=[f"{n} {o.opts[0]}" for n, o in float_options()])
def test_no_float_option_takes_what_is_no_amount(name: str, option: click.Option, value: str) -> None:
    with pytest.raises(click.BadParameter):
        option.type.convert(value, option, click.Context(click.Command(name)))
    assert option.type.convert("1", option, None) == 1.0


def test_a_budget_that_is_no_number_changes_nothing(gradmux: Gradmux, home: Path) -> None:
    folder = home / "runs" / "digits-1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    told = gradmux("resume", "digits-1", "--max-cost-usd", "nan")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "'nan' is not a finite number" in told.err
    assert (folder / "job.json").read_text() == "{}"


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.Abort])
def test_who_interrupts_gets_130(monkeypatch: pytest.MonkeyPatch, gradmux: Gradmux, error: type[BaseException]) -> None:
    monkeypatch.setattr(Settings, "home", property(lambda _: _raise(error())))
    assert (gradmux("list").code, gradmux("list").err.strip()) == (130, "gradmux: interrupted")


def test_a_file_that_ends_too_early_is_no_interruption(monkeypatch: pytest.MonkeyPatch, gradmux: Gradmux) -> None:
    monkeypatch.setattr(Settings, "home", property(lambda _: _raise(EOFError("no data left in file"))))
    with pytest.raises(EOFError, match="no data left"):
        gradmux("list")


def _raise(error: BaseException) -> None:
    raise error
