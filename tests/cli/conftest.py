"""Runs command lines in this process and keeps what they printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.main import run


@dataclass(frozen=True, slots=True)
class Ran:
    """One finished command line."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The whole of stdout as JSON."""
        return json.loads(self.out)


Gradmux = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def gradmux(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Gradmux:
    """`gradmux("schemes", "--json")` runs it with a home of its own."""
    monkeypatch.setenv("GRADMUX_HOME", str(home))

    def call(*arguments: str | Path) -> Ran:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call
