"""An exception as the text of a failed result: its name, its message, and the user's part of the traceback."""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["describe"]

MESSAGE_CHARACTERS = 1_000
FRAMES = 8
TEXT_CHARACTERS = 4_000
OWN_FILES = str(Path(__file__).parent)


def describe(error: BaseException) -> str:
    """Name and message, then the innermost frames of code that is not ours, if any; at most 4,000 characters."""
    message = str(error).strip() or "(no message)"
    lines = [f"{type(error).__name__}: {message[:MESSAGE_CHARACTERS]}"]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OWN_FILES)]
    lines += [line.rstrip() for line in traceback.format_list(frames[-FRAMES:])]
    text = "\n".join(lines)[:TEXT_CHARACTERS]
    return text.encode("utf-8", "replace").decode()  # lone surrogates have no UTF-8
