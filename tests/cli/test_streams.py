"""Standard output that is full, or that has few characters: one line, or other characters, and never a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO, cast

import pytest

from gradmux.orchestrator.streams import PAIRS, Checked, OutputLost, spell_otherwise

FULL = Path("/dev/full")
GRADMUX = [sys.executable, "-c", "from gradmux.cli.main import main; main()"]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output_is_one_line(tmp_path: Path, words: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "GRADMUX_HOME": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}
    with FULL.open("w") as full:
        told = subprocess.run(
            [*GRADMUX, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert told.returncode == 1
    assert told.stderr == "gradmux: standard output cannot be written: No space left on device\n"


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_a_mistake_is_still_told_when_its_document_cannot_be() -> None:
    with FULL.open("w") as full:
        told = subprocess.run(
            [*GRADMUX, "sbmit", "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "did you mean 'submit'?" in told.stderr


@pytest.mark.parametrize("words", [["schemes", "gc"], ["profile", "show", "bursty"]])
def test_pictures_are_drawn_in_ascii_where_there_is_nothing_else(words: list[str]) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    told = subprocess.run([*GRADMUX, *words], capture_output=True, env=environment, check=False)
    assert (told.returncode, told.stderr) == (0, b"")
    drawn = told.stdout.decode("ascii")
    assert "?" not in drawn
    assert "|" in drawn


def test_what_is_spelled_otherwise_keeps_its_width() -> None:
    drawn = "".join(pair[0] for pair in PAIRS) + "é\U0001f600"
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    spell_otherwise(stream)
    stream.write(drawn)
    stream.flush()
    written = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert (len(written), written[-2:]) == (len(drawn), "??")


def test_a_reader_that_leaves_is_no_full_disk() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", closefd=True) as stream:
        checked = Checked(stream)
        checked.write("x" * 100)
        with pytest.raises(BrokenPipeError):
            checked.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_it_is_told_once() -> None:
    with FULL.open("w") as stream:
        checked = Checked(stream)
        with pytest.raises(OutputLost):
            print("x", file=cast(TextIO, checked), flush=True)
        assert checked.write("more") == 4
        checked.flush()
