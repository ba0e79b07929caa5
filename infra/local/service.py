"""Serves Lambda's endpoint until told to stop: the event loop of the server process.

Apart from `server.py` because importing all this takes as long as starting the other processes, which `server.py` does
meanwhile. Read next: `endpoint.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from gradmux.infra.local.admin import Admin
from gradmux.infra.local.answers import SYNC_REQUEST_BYTES
from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.endpoint import Endpoint
from gradmux.infra.local.environment import environment_file, shell_lines, write_private
from gradmux.infra.local.http_server import HttpServer
from gradmux.infra.local.invocation import Invoker
from gradmux.infra.local.launch import Started
from gradmux.infra.local.parts import Parts
from gradmux.infra.local.pool import Pool
from gradmux.infra.local.processes import start_time
from gradmux.infra.local.secret import Secret
from gradmux.infra.local.sigv4 import Verifier
from gradmux.infra.local.statistics import Statistics

PARENT_CHECK_S = 1.0
BODY_LIMIT = SYNC_REQUEST_BYTES


async def serve(config: EmulatorConfig, secret: Secret, parts: Parts, root: Path, state: Path | None) -> None:
    """Serves until told to stop: by a signal, by the end of the lifeline, or by the end of zygote or moto."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    for process in (parts.zygote, parts.moto):
        stop_at_end_of(process, stop)
    if state is None:
        watch_parent(os.getppid(), stop)
    pool = Pool(parts.control, root, config.memory_mb)
    invoker = Invoker(config, pool, Statistics())
    endpoint = Endpoint(invoker, Admin(invoker, pool), Verifier(secret, config.region, "lambda"))
    server = HttpServer(parts.lambda_listener, endpoint.handle, body_limit=BODY_LIMIT)
    await pool.warm(config.warm)
    announce(config, secret, parts, state)
    await stop.wait()
    server.close()


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


def announce(config: EmulatorConfig, secret: Secret, parts: Parts, state: Path | None) -> None:
    """Tells the parent, and files that nobody else can read, where everything is."""
    pids = {"server": os.getpid(), "zygote": parts.zygote.pid, "moto": parts.moto.pid}
    said = {
        "lambda_port": parts.lambda_listener.getsockname()[1],
        "s3_port": parts.s3_listener.getsockname()[1],
        "processes": {name: [pid, start_time(pid)] for name, pid in pids.items()},
        "config": config.identity(),
        "secret": secret.to_json(),
    }
    text = json.dumps(said)
    if state is not None:
        write_private(environment_file(state), shell_lines(Started.from_json(json.loads(text)).environment()))
        write_private(state, text)
    print(text, flush=True)
