"""The emulator's main process: binds the ports, starts moto and the zygote, serves Lambda's endpoint.

Its standard input begins with the configuration and is its lifeline: when it ends, so does everything. With a state
file as argument 1 it is detached: it outlives its parent and removes that file at its end. Its standard output says
one line of JSON: where all is, or why not. Read next: `endpoint.py`, `pool.py`; the parent's side is `launch.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from aiohttp import web

from infra.local.admin import Admin
from infra.local.config import EmulatorConfig
from infra.local.endpoint import Endpoint
from infra.local.errors import EmulatorError
from infra.local.invocation import Invoker
from infra.local.parts import BACKLOG, Parts, start_parts, wait_until_ready
from infra.local.pool import Pool
from infra.local.processes import start_time
from infra.local.statistics import Statistics

PARENT_CHECK_S = 1.0


async def serve(config: EmulatorConfig, parts: Parts, root: Path, state: Path | None) -> None:
    """Serves until told to stop: by a signal, by the end of the lifeline, or by the end of zygote or moto."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    for process in (parts.zygote, parts.moto):
        stop_at_end_of(process, stop)
    if state is None:
        watch_parent(os.getppid(), stop)
    parts.control.setblocking(False)
    pool = Pool(parts.control, root, config.memory_mb)
    invoker = Invoker(config, pool, Statistics())
    runner = web.ServerRunner(web.Server(Endpoint(invoker, Admin(invoker, pool)).handle, access_log=None))
    await runner.setup()
    await web.SockSite(runner, parts.lambda_listener, backlog=BACKLOG, shutdown_timeout=0.1).start()
    await pool.warm(config.warm)
    announce(config, parts, state)
    await stop.wait()
    await runner.cleanup()


def stop_at_end_of(process: subprocess.Popen[bytes], stop: asyncio.Event) -> None:
    """Half an emulator is none: when a part ends, all ends."""
    descriptor = os.pidfd_open(process.pid)
    asyncio.get_running_loop().add_reader(descriptor, stop.set)


def watch_parent(parent: int, stop: asyncio.Event) -> None:
    """Stops when standard input ends, or, should a fork of the parent hold it open, when the parent is gone."""
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), stop.set)

    def check() -> None:
        if os.getppid() != parent:
            stop.set()
        loop.call_later(PARENT_CHECK_S, check)

    check()


def announce(config: EmulatorConfig, parts: Parts, state: Path | None) -> None:
    """Tells the parent, and the state file, where everything is."""
    pids = {"server": os.getpid(), "zygote": parts.zygote.pid, "moto": parts.moto.pid}
    said = {
        "lambda_port": parts.lambda_listener.getsockname()[1],
        "s3_port": parts.s3_listener.getsockname()[1],
        "processes": {name: [pid, start_time(pid)] for name, pid in pids.items()},
        "config": config.identity(),
    }
    text = json.dumps(said)
    if state is not None:
        unfinished = state.with_name(f"{state.name}.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.replace(state)
    print(text, flush=True)


def raise_descriptor_limit() -> None:
    """A sandbox needs two descriptors, a client one: a thousand of each do not fit into the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Entry point: argument 1, if any, is the state file of a detached server."""
    state = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    config = EmulatorConfig.from_json(json.loads(sys.stdin.buffer.readline()))
    raise_descriptor_limit()
    root = Path(tempfile.mkdtemp(prefix="gradmux-local-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        if state is not None:
            stack.callback(state.unlink, missing_ok=True)
        try:
            parts = start_parts(config, root, stack)
            wait_until_ready(parts)
        except EmulatorError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return
        asyncio.run(serve(config, parts, root, state))


if __name__ == "__main__":
    main()
