"""`gradmux completion`: the script that teaches a shell to complete our commands and options."""

from __future__ import annotations

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import print_json


@command("completion", example="echo 'eval \"$(gradmux completion bash)\"' >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_settings
def completion_command(settings: Settings, shell: str) -> None:
    """Print the completion script for SHELL; your shell evaluates it at its start."""
    from click.shell_completion import get_completion_class

    from gradmux.cli.main import gradmux

    completer = get_completion_class(shell)
    assert completer is not None
    script = completer(gradmux, {}, "gradmux", "_GRADMUX_COMPLETE").source()
    if settings.json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
