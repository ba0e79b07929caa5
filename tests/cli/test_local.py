"""`gradmux local`: the emulator outlives the command, answers a stock boto3 client, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import psutil
import pytest

from gradmux.infra.local import detached
from tests.cli.conftest import Gradmux


@pytest.fixture
def stopped_after(home: Path) -> Iterator[None]:
    yield
    detached.down(home)


@pytest.fixture
def handler_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "echo_handler.py").write_text("def handler(event, context):\n    return {'said': event['word']}\n")
    return folder


def sourced(line: str) -> dict[str, str]:
    """What a shell has in its AWS variables after it has read the line."""
    told = subprocess.run(["sh", "-c", f"{line.strip()}\nenv"], capture_output=True, text=True, check=True).stdout
    pairs = (line.partition("=")[::2] for line in told.splitlines())
    return {name: value for name, value in pairs if name.startswith("AWS_")}


@pytest.mark.usefixtures("stopped_after")
def test_up_serves_a_stock_client_until_down(
    gradmux: Gradmux, home: Path, handler_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = gradmux("local", "up", "--handler", "echo_handler:handler", "--path", handler_folder, "--function", "echo")
    assert ran.code == 0
    for name, value in sourced(ran.out).items():
        monkeypatch.setenv(name, value)
    answer = boto3.Session().client("lambda").invoke(FunctionName="echo", Payload=json.dumps({"word": "hello"}))
    assert json.load(answer["Payload"]) == {"said": "hello"}

    told = gradmux("local", "status", "--json").document
    assert told["running"]
    assert told["statistics"]["invocations"] == 1
    children = psutil.Process(told["pid"]).children(recursive=True)
    assert children

    assert gradmux("local", "down", "--json").document == {"ended": True}
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert gradmux("local", "status", "--json").document == {"running": False}
    assert gradmux("local", "down", "--json").document == {"ended": False}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--fault", "flood=0.1"), 2, "there is no kind 'flood'"),
        (("--fault", "crash"), 2, "must be KIND=RATE"),
        (("--fault", "crash=often"), 2, "must be KIND=RATE with a rate from 0 to 1"),
        (("--fault", "crash=2"), 2, "from 0 to 1"),
        (("--delays", "nowhere.npz"), 2, "neither a profile file nor a generator"),
        (("--handler", "no_such_module:f"), 3, "no_such_module"),
        (("--workers", "5", "--concurrency", "4"), 3, "concurrency"),
    ],
)
def test_what_cannot_be_started_is_one_line(
    gradmux: Gradmux, home: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    ran = gradmux("local", "up", *words)
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1
    assert message in ran.err
    assert detached.status(home) is None


def test_a_port_in_use_is_named(gradmux: Gradmux, home: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = gradmux("local", "up", "--lambda-port", str(port))
    assert ran.code == 3
    assert str(port) in ran.err
    assert detached.status(home) is None
