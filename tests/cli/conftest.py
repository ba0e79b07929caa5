"""Runs command lines in this process and keeps what they printed; an account on one emulator for jobs "on AWS"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from gradmux.cli.main import run
from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig, FaultPlan

BUCKET = "far-away"
ON_AWS = {"backend": "aws", "bucket": BUCKET}
"""the section [cluster] of jobs that run in the account"""


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


@pytest.fixture(scope="session")
def shared_account() -> Iterator[Emulator]:
    with Emulator(EmulatorConfig(concurrency=64, warm=12)) as emulator:
        yield emulator


@pytest.fixture
def account(shared_account: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """What AWS's own variables lead to: an emulator that is there already, with an empty bucket `BUCKET`.

    A test that is not about the emulator's life runs its jobs here and spares its start. Delays and faults that it sets
    end with it.
    """
    for name, value in shared_account.environment().items():
        monkeypatch.setenv(name, value)
    bucket = boto3.Session().resource("s3").create_bucket(Bucket=BUCKET)
    yield shared_account
    shared_account.set_delays(DelayPlan())
    shared_account.set_faults(FaultPlan())
    bucket.objects.delete()
