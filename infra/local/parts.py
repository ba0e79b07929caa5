"""What the server process is made of: two listening sockets, the zygote and moto, started side by side.

Knows nothing of HTTP or invocations. Used by `server.py`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.names import LATEST
from gradmux.infra.local.processes import child_environment, local_variables, python_module
from gradmux.infra.local.secret import Secret
from gradmux.infra.local.wire import NOTICE
from gradmux.lambda_worker.processor import pinned_kernels
from gradmux.orchestrator.training.user_files import places_now

BACKLOG = 4096
STOP_S = 10.0


class PartDied(EmulatorError):
    """A process ended before it was ready; the last line of the log says why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The sockets and processes that the server looks after."""

    lambda_listener: socket.socket
    s3_listener: socket.socket
    control: socket.socket
    """orders to the zygote, notices from it"""
    zygote: subprocess.Popen[bytes]
    moto: subprocess.Popen[bytes]


def start_parts(config: EmulatorConfig, secret: Secret, root: Path, stack: ExitStack) -> Parts:
    """Binds both ports, then starts both processes; `stack` ends them. Raises EmulatorError for a port in use."""
    lambda_listener = stack.enter_context(bind(config.lambda_port, "the Lambda endpoint"))
    s3_listener = stack.enter_context(bind(config.s3_port, "S3"))
    ports = lambda_listener.getsockname()[1], s3_listener.getsockname()[1]
    variables = worker_variables(config, secret, *ports)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        zygote = start_zygote(config, root, variables, theirs)
    stack.callback(end, zygote)
    stack.enter_context(ours)  # closed before `end`: the zygote takes it as its order to leave
    moto = start_moto(s3_listener, config, secret)
    stack.callback(end, moto, at_once=True)
    return Parts(lambda_listener, s3_listener, ours, zygote, moto)


def bind(port: int, what: str) -> socket.socket:
    """A listening socket on 127.0.0.1. Raises EmulatorError naming the port when it cannot be had."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        listener.close()
        message = f"port {port} for {what} cannot be used ({error}): give another one, or 0 for any free port"
        raise EmulatorError(message) from error
    listener.listen(BACKLOG)
    return listener


def worker_variables(config: EmulatorConfig, secret: Secret, lambda_port: int, s3_port: int) -> dict[str, str]:
    """The environment of zygote and workers: Lambda's own variables, the emulator's endpoints, the function's own."""
    return {
        **local_variables(config.region, f"http://127.0.0.1:{lambda_port}", f"http://127.0.0.1:{s3_port}", secret),
        # From Python 3.12 on AWS's runtime writes JSON without escaping Unicode: what the worker's image does.
        "AWS_EXECUTION_ENV": f"AWS_Lambda_python3.{max(12, sys.version_info.minor)}",
        "AWS_LAMBDA_FUNCTION_NAME": config.function,
        "AWS_LAMBDA_FUNCTION_VERSION": LATEST,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(config.memory_mb),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{config.function}",
        "LAMBDA_TASK_ROOT": os.getcwd(),
        "GRADMUX_CODE": os.pathsep.join(dict.fromkeys([*config.python_path, *places_now().added])),
        "_HANDLER": config.handler.replace(":", "."),
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **pinned_kernels(),
        **dict(config.variables),
    }


def start_zygote(
    config: EmulatorConfig, root: Path, variables: dict[str, str], control: socket.socket
) -> subprocess.Popen[bytes]:
    arguments = {
        "control": control.fileno(),
        "parent": os.getpid(),
        "handler": config.handler,
        "preload": config.preload,
        "root": str(root),
    }
    return subprocess.Popen(
        python_module("gradmux.infra.local.zygote", json.dumps(arguments)),
        env=child_environment(variables, config.python_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[control.fileno()],
    )


def start_moto(listener: socket.socket, config: EmulatorConfig, secret: Secret) -> subprocess.Popen[bytes]:
    arguments = {
        "listen": listener.fileno(),
        "parent": os.getpid(),
        "region": config.region,
        "faults": config.faults.to_json(),
    }
    return subprocess.Popen(
        python_module("gradmux.infra.local.s3", json.dumps(arguments)),
        env=child_environment({"AWS_EC2_METADATA_DISABLED": "true", **secret.variables()}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )


def wait_until_ready(parts: Parts) -> None:
    """Blocks until zygote and moto can work. Raises EmulatorError, or PartDied, when one cannot."""
    message = parts.control.recv(4096)
    if not message:
        raise PartDied("the process that workers are forked from ended")
    if not message.startswith(b"R"):
        raise EmulatorError(" ".join(message[NOTICE.size :].decode(errors="replace").split()))
    assert parts.moto.stdout is not None
    if not parts.moto.stdout.readline():
        raise PartDied("the S3 server (moto) ended")


def end(process: subprocess.Popen[bytes], at_once: bool = False) -> None:
    """Ends a child and buries it; what it started dies with it (see `die_with_parent`).

    One that is stopped is continued: it has its order to leave, and would not hear it.
    """
    if at_once:
        process.kill()
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
