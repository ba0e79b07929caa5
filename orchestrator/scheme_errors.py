"""Whose fault an exception is: one that a scheme from elsewhere has raised is told in one line, with its place.

Exceptions of our own code stay tracebacks: they are for us. Knows no command. Read next: `cli/main.py`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradmux.orchestrator.schemes.scheme import SchemeInfo

OURS = "gradmux"


def blame(error: Exception) -> str:
    """One line that names the scheme, the exception and the line that raised it; empty when no scheme has."""
    registry = sys.modules.get("gradmux.orchestrator.schemes.registry")
    if registry is None:
        return ""
    names = _foreign(registry.REGISTRY.values())
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _package(frame) in names]
    if not frames:
        return ""
    frame, line = frames[-1]
    named = " or ".join(repr(name) for name in names[_package(frame)])
    code = frame.f_code
    place = f"{Path(code.co_filename).name}:{line}, in {code.co_name}"
    return f"scheme {named} raised {described(error)} ({place}); -v shows the whole traceback"


def described(error: BaseException) -> str:
    """Type and first line of the text."""
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def whole(error: BaseException) -> str:
    """The traceback as Python prints it."""
    return "".join(traceback.format_exception(error))


def _foreign(infos: Iterable[SchemeInfo]) -> dict[str, list[str]]:
    """Package -> the schemes that it brings."""
    found: dict[str, list[str]] = {}
    for info in infos:
        module = getattr(info.build, "__module__", None) or ""
        package = module.partition(".")[0]
        if package and package != OURS:
            found.setdefault(package, []).append(info.name)
    return found


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
