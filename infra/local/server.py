"""The emulator's main process: binds the ports, starts moto and the zygote, serves Lambda's endpoint.

Its standard input carries the configuration and is its lifeline: when it ends, so does everything (unless detached).
Its standard output says one line of JSON when all is ready, or why not. Read next: `endpoint.py`, `pool.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from infra.local.admin import Admin
from infra.local.config import EmulatorConfig
from infra.local.endpoint import Endpoint
from infra.local.errors import EmulatorError
from infra.local.invocation import Invoker
from infra.local.names import LATEST
from infra.local.pool import Pool
from infra.local.processes import child_environment, local_variables, python_module, start_time
from infra.local.statistics import Statistics
from infra.local.wire import NOTICE

BACKLOG = 4096
STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """The processes and sockets that the server looks after."""

    lambda_listener: socket.socket
    s3_listener: socket.socket
    control: socket.socket
    moto: subprocess.Popen[bytes]
    zygote: subprocess.Popen[bytes]

    def ports(self) -> tuple[int, int]:
        return self.lambda_listener.getsockname()[1], self.s3_listener.getsockname()[1]


def bind(port: int, what: str) -> socket.socket:
    """A listening socket on 127.0.0.1. Raises EmulatorError naming the port when it is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise EmulatorError(f"port {port} for {what} is in use; give another one, or 0 for any free port") from error
    listener.listen(BACKLOG)
    return listener


def worker_variables(config: EmulatorConfig, lambda_port: int, s3_port: int) -> dict[str, str]:
    """The environment of zygote and workers: Lambda's own variables, the emulator's endpoints, the function's own."""
    urls = f"http://127.0.0.1:{lambda_port}", f"http://127.0.0.1:{s3_port}"
    return {
        **local_variables(config.region, *urls),
        "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{max(12, sys.version_info.minor)}",
        "AWS_LAMBDA_FUNCTION_NAME": config.function,
        "AWS_LAMBDA_FUNCTION_VERSION": LATEST,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(config.memory_mb),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{config.function}",
        "LAMBDA_TASK_ROOT": os.getcwd(),
        "_HANDLER": config.handler.replace(":", "."),
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **dict(config.variables),
    }


def start_parts(config: EmulatorConfig, root: Path, stack: ExitStack) -> Parts:
    """Binds both ports, then starts both processes side by side; `stack` ends them."""
    lambda_listener = stack.enter_context(bind(config.lambda_port, "the Lambda endpoint"))
    s3_listener = stack.enter_context(bind(config.s3_port, "S3"))
    lambda_port, s3_port = lambda_listener.getsockname()[1], s3_listener.getsockname()[1]
    variables = worker_variables(config, lambda_port, s3_port)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.enter_context(ours)
    zygote_arguments = json.dumps(
        {
            "control": theirs.fileno(),
            "parent": os.getpid(),
            "handler": config.handler,
            "preload": config.preload,
            "root": str(root),
        }
    )
    zygote = subprocess.Popen(
        python_module("infra.local.zygote", zygote_arguments),
        env=child_environment(variables, config.python_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    stack.callback(end, zygote)
    theirs.close()
    moto_arguments = json.dumps({"listen": s3_listener.fileno(), "parent": os.getpid()})
    moto = subprocess.Popen(
        python_module("infra.local.s3", moto_arguments),
        env=child_environment({"AWS_EC2_METADATA_DISABLED": "true"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[s3_listener.fileno()],
    )
    stack.callback(end, moto)
    return Parts(lambda_listener, s3_listener, ours, moto, zygote)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a child and buries it; what it started dies with it (see `die_with_parent`)."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_ready(parts: Parts) -> None:
    """Blocks until zygote and moto can work. Raises EmulatorError with the reason when one cannot."""
    message = parts.control.recv(4096)
    if message[:1] != NOTICE.pack(b"R", 0, 0)[:1]:
        reason = message[NOTICE.size :].decode() or "the worker zygote ended before it was ready"
        raise EmulatorError(reason)
    assert parts.moto.stdout is not None
    if not parts.moto.stdout.readline():
        raise EmulatorError("the S3 server (moto) ended before it was ready")


async def serve(config: EmulatorConfig, parts: Parts, root: Path, detached: bool) -> None:
    """Serves until told to stop: by a signal, by the end of the lifeline, or by the end of zygote or moto."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if not detached:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    parts.control.setblocking(False)
    pool = Pool(parts.control, root, config.memory_mb)
    invoker = Invoker(config, pool, Statistics())
    server = web.Server(Endpoint(invoker, Admin(invoker, pool)).handle, access_log=None)
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.SockSite(runner, parts.lambda_listener, backlog=BACKLOG, shutdown_timeout=0.1).start()
    await pool.warm(config.warm)
    announce(parts)
    await stop.wait()
    await runner.cleanup()


def announce(parts: Parts) -> None:
    """Tells the parent where everything is."""
    lambda_port, s3_port = parts.ports()
    pids = {"server": os.getpid(), "zygote": parts.zygote.pid, "moto": parts.moto.pid}
    started = {name: [pid, start_time(pid)] for name, pid in pids.items()}
    say({"lambda_port": lambda_port, "s3_port": s3_port, "processes": started})


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def raise_descriptor_limit() -> None:
    """A sandbox needs two descriptors, a client one: a thousand of each do not fit into the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Entry point: argument "detached" outlives its parent; standard input begins with a line of JSON."""
    detached = "detached" in sys.argv[1:]
    config = EmulatorConfig.from_json(json.loads(sys.stdin.buffer.readline()))
    raise_descriptor_limit()
    root = Path(tempfile.mkdtemp(prefix="gradmux-local-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        try:
            parts = start_parts(config, root, stack)
            wait_until_ready(parts)
        except EmulatorError as error:
            say({"error": str(error)})
            return
        asyncio.run(serve(config, parts, root, detached))


if __name__ == "__main__":
    main()
