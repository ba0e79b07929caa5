"""The file that leads a shell to a running emulator, and holds its key. Used by `detached.py` and `service.py`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from gradmux.orchestrator.disk import private_opener

PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
"""They go before a key in the environment."""


def environment_file(state: Path) -> Path:
    """Where a detached emulator writes its variables, beside its state."""
    return state.with_suffix(".env")


def shell_lines(variables: Mapping[str, str]) -> str:
    """What a shell reads with `.`"""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([f"unset {' '.join(PROFILES)}", *exports, ""])


def write_private(path: Path, text: str) -> None:
    """Makes or replaces a file at once."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with open(unfinished, "w", opener=private_opener) as file:
        file.write(text)
    unfinished.replace(path)
