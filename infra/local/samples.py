"""Small handlers to try the emulator with: `handler="gradmux.infra.local.samples:handler"`, event {"do": NAME, ...}.

They stand for the things that functions do to Lambda: answer, answer too much, fail, hang, die, eat memory.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def echo(event: Event, context: Any) -> Any:
    return event


def reply_of_size(event: Event, context: Any) -> str:
    """A reply of exactly event["bytes"] bytes as JSON, quotes included."""
    return "x" * (int(event["bytes"]) - 2)


def sleep(event: Event, context: Any) -> str:
    time.sleep(event["seconds"])
    return "slept"


def wait(event: Event, context: Any) -> str:
    """Answers as soon as there is a file event["path"]."""
    while not Path(event["path"]).exists():
        time.sleep(0.01)
    return "it is there"


def fail(event: Event, context: Any) -> None:
    raise ValueError(event.get("message", "as asked"))


def die(event: Event, context: Any) -> None:
    """Says event["text"] and ends by a signal, or with an exit status."""
    print(event.get("text", ""))
    if "signal" in event:
        os.kill(os.getpid(), event["signal"])
    sys.exit(event.get("status", 1))


def eat(event: Event, context: Any) -> int:
    """Touches event["mb"] megabytes and holds them for event["seconds"]."""
    held = bytearray(b"x") * (event["mb"] * 2**20)
    time.sleep(event.get("seconds", 0.0))
    return len(held)


def write(event: Event, context: Any) -> str:
    """Prints event["text"]."""
    print(event["text"])
    return "printed"


def describe(event: Event, context: Any) -> dict[str, Any]:
    """What the handler can see of its invocation."""
    return {
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "function": context.function_name,
        "memory_mb": int(context.memory_limit_in_mb),
        "remaining_ms": context.get_remaining_time_in_millis(),
        "log_stream": context.log_stream_name,
        "client_context": context.client_context.custom if context.client_context else None,
        "pid": os.getpid(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "LAMBDA_"))},
    }


def count_in_tmp(event: Event, context: Any) -> dict[str, Any]:
    """Adds a line to a file in the sandbox's /tmp and counts them: how often this sandbox was used."""
    path = Path(tempfile.gettempdir()) / "calls"
    with path.open("a") as file:
        file.write("call\n")
    return {"calls": len(path.read_text().splitlines()), "directory": str(path.parent), "pid": os.getpid()}


def reply_nonsense(event: Event, context: Any) -> object:
    """A reply that is no JSON."""
    return {1, 2}


def draw(event: Event, context: Any) -> float:
    """A random number, after event["seconds"]."""
    time.sleep(event["seconds"])
    return random.random()


def semaphore(event: Event, context: Any) -> str:
    multiprocessing.get_context("fork").Lock()
    return "got one"


ACTIONS: dict[str, Callable[[Event, Any], Any]] = {
    each.__name__: each
    for each in (
        echo,
        reply_of_size,
        reply_nonsense,
        sleep,
        wait,
        fail,
        die,
        eat,
        write,
        describe,
        count_in_tmp,
        draw,
        semaphore,
    )
}


def handler(event: Any, context: Any) -> Any:
    """Does event["do"]; echoes without it."""
    name = event.get("do", "echo") if isinstance(event, dict) else "echo"
    return ACTIONS[name](event, context)
