"""A process's standard streams: never closed, spelled otherwise where an encoding falls short, a full disk is one line.

    fill_standard_streams()                      nothing else takes the place of a stream that was closed
    spell_otherwise(sys.stdout, sys.stderr)      similar characters for those that an encoding does not have
    Checked(sys.stdout)                          a result that cannot be written is an error, told once
    Lasting(sys.stderr)                          progress that nobody reads any more is not

Knows no command and prints nothing. `disk.py` is the same for files.
"""

from __future__ import annotations

import codecs
import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import IO, Any, TextIO

from gradmux.orchestrator.errors import GradmuxError

SPELLED = "gradmux-ascii"
"""the name of our way to encode what an encoding does not have"""
PAIRS = ("─-", "│|", "├+", "└+", "┼+", "░.", "▒:", "▓*", "█#", "▇#", "×x", "✗x", "↻@", "·.", "–-", "….")
ASCII = {ord(pair[0]): pair[1] for pair in PAIRS}
"""One character for each, so that columns stay where they are."""


class OutputLost(GradmuxError):
    """Standard output does not take what is written to it."""


def _spell(error: UnicodeError) -> tuple[str, int]:
    """For `codecs.register_error`: similar characters of ASCII, `?` for all others."""
    assert isinstance(error, UnicodeEncodeError)
    spelled = error.object[error.start : error.end].translate(ASCII)
    return spelled.encode("ascii", "replace").decode(), error.end


def fill_standard_streams() -> None:
    """Opens nothing in the place of standard streams that are closed (`2>&-`), so that no file or socket takes it.

    What is written there is lost, as it was meant to be; the command goes on.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def spell_otherwise(*streams: Any) -> None:
    """From now on no character keeps these streams from being written, whatever their encoding."""
    codecs.register_error(SPELLED, _spell)
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # of a file once, and a terminal since: it cannot be sought in, and stays as it is
                stream.reconfigure(errors=SPELLED)


class Checked:
    """A stream that raises OutputLost, once, where a disk is full; its reader's leaving stays BrokenPipeError."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream
        self._lost = False

    @property
    def buffer(self) -> Checked:
        """Where bytes are written."""
        return Checked(self._stream.buffer)  # type: ignore[attr-defined]

    def write(self, data: Any) -> int:
        try:
            return len(data) if self._lost else self._stream.write(data)
        except OSError as error:
            if not data:  # click asks in this way what may be written, and hears no refusal
                return 0
            raise self._lose(error) from error

    def flush(self) -> None:
        try:
            if not self._lost:
                self._stream.flush()
        except OSError as error:
            raise self._lose(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: OSError) -> Exception:
        """What is still in its buffers goes nowhere: the interpreter's end would fail on it once more."""
        if error.errno == errno.EPIPE:
            return error
        self._lost = True
        with suppress(OSError), open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self._stream.fileno())
        return OutputLost(f"standard output cannot be written: {error.strerror or error}")


class Lasting:
    """A stream whose reader may leave: when the terminal is closed, the command goes on, and what it says is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
