"""The emulator's main process: binds the ports, starts moto and the zygote, serves Lambda's endpoint.

Its standard input begins with configuration and key and is its lifeline: when it ends, so does everything. With a state
file as argument 1 it is detached: it outlives its parent and removes that file at its end. Its standard output says
one line of JSON: where all is, or why not. Read next: `service.py`; the parent's side is `launch.py`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import uvloop

from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.environment import environment_file
from gradmux.infra.local.errors import EmulatorError
from gradmux.infra.local.parts import PartDied, start_parts, wait_until_ready
from gradmux.infra.local.processes import wake_at_end_of
from gradmux.infra.local.secret import Secret


def raise_descriptor_limit() -> None:
    """A sandbox needs two descriptors, a client one: a thousand of each do not fit into the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def leave(*_: object) -> None:
    """Turns SIGTERM during the start into an orderly end."""
    raise SystemExit(0)


def run(config: EmulatorConfig, secret: Secret, root: Path, state: Path | None, stack: ExitStack) -> None:
    """Starts the parts and serves. Raises EmulatorError when a part cannot start."""
    parts = start_parts(config, secret, root, stack)
    from gradmux.infra.local.service import serve  # takes its time, while the parts start

    wait_until_ready(parts)
    uvloop.run(serve(config, secret, parts, root, state))


def main() -> None:
    """Entry point: argument 1, if any, is the state file of a detached server."""
    state = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    os.umask(0o077)  # nothing that it or its children make is another user's to read
    told = json.loads(sys.stdin.buffer.readline())
    config, secret = EmulatorConfig.from_json(told["config"]), Secret(**told["secret"])
    raise_descriptor_limit()
    if state is None:
        wake_at_end_of(os.getppid())  # it is noticed then, by `watch_parent`
    signal.signal(signal.SIGTERM, leave)
    root = Path(tempfile.mkdtemp(prefix="gradmux-local-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        if state is not None:
            stack.callback(state.unlink, missing_ok=True)
            stack.callback(environment_file(state).unlink, missing_ok=True)
        try:
            run(config, secret, root, state, stack)
        except EmulatorError as error:
            print(json.dumps({"error": str(error), "see_log": isinstance(error, PartDied)}), flush=True)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # no order to end interrupts the end


if __name__ == "__main__":
    main()
