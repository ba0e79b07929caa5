"""Command lines as processes of their own, interrupted as a user would."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

PATIENCE_S = 60.0


@contextmanager
def running(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """`gradmux ARGUMENTS` in the background; killed when the test fails before it has ended."""
    code = "from cli.main import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def interrupt(process: subprocess.Popen[str], sent: signal.Signals, code: int) -> str:
    """Sends the signal; the process must end with `code` and take everything that it started with it. Gives stderr."""
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []
    return err


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns as soon as the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
