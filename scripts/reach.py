"""How much code a thing passes through, and how many files a change touches: `python -m scripts.reach`.

The rules, so that two trees can be compared:

- **In all**: files `*.py` of the four rooms, and their lines.
- **One gradient**: a job of one model and one step is trained by `gradmux submit` on two emulated workers, in this
  process. A module counts when one of its functions is called, on any thread of this process, between the call of
  `Loop.run` and its return: from the first dispatch to the last applied step. What runs while a module is imported does
  not count, nor do the emulator's processes.
- **Ctrl-C**: the same command with many steps gets SIGINT when the loop takes its third answer. A module counts when
  one of its functions is called between the signal and the command's return.
- **An option**: files of the rooms that name `in_flight_cap` (or the option `in-flight-cap`), which is a key of the job
  file, an option of commands, and a limit of the loop.
- **A backend**: files of the rooms, outside the folder of a backend's own, that name one: the text "aws" or "local", or
  an import from `infra.aws` or `infra.local`.

Another tree, also one from before all rooms were in one package:

    git worktree add ../before ee2b1a2
    python -m scripts.reach --root ../before --packages cli,infra,lambda_worker,orchestrator
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("orchestrator", "lambda_worker", "infra", "cli")
OPTION = re.compile(r"in[_-]flight[_-]cap")
BACKEND = re.compile(r"""["'](aws|local)["']|\binfra\.(aws|local)\b""")
ANSWERS = 3
JOB = """name = "reach"
scheme = {{ name = "gc", s = 1 }}
cluster = {{ backend = "local", workers = 2 }}
data = {{ train = "digits:train", batch_size = 32 }}
training = {{ steps = {steps} }}
models = [{{ name = "m", factory = "net:mlp" }}]
"""
NET = "from torch import nn\n\n\ndef mlp():\n    return nn.Linear(64, 10)\n"


def main() -> None:
    """Prints the counts as a table, or as JSON with the names of modules and files."""
    parser = argparse.ArgumentParser(
        description="Counts modules on the way of things, and files that a change touches."
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to look at (else this one)")
    parser.add_argument("--packages", default="gradmux", help="its top-level packages, separated by commas")
    parser.add_argument("--json", action="store_true", help="everything, with names")
    parser.add_argument("--child", choices=["gradient", "ctrl-c"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    root, packages = given.root.resolve(), given.packages.split(",")
    if given.child:
        print(json.dumps(_trace(root, packages, given.child)))
        return
    files = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    found = {
        "one gradient": _traced(root, given.packages, "gradient"),
        "Ctrl-C": _traced(root, given.packages, "ctrl-c"),
        "an option": list(_naming(files, root, OPTION)),
        "a backend": [
            name for name in _naming(files, root, BACKEND) if not name.startswith(("infra/aws", "infra/local"))
        ],
    }
    lines = {path.relative_to(root).as_posix(): len(path.read_text().splitlines()) for path in files}
    if given.json:
        print(json.dumps({"modules": len(files), "lines": sum(lines.values()), **found}, indent=1))
        return
    print(f"{'in all':14}{len(files):5} modules{sum(lines.values()):7} lines")
    for what, names in found.items():
        unit = "files" if what.startswith("a") else "modules"
        print(f"{what:14}{len(names):5} {unit:7}{sum(lines.get(name, 0) for name in names):7} lines")


def _naming(files: list[Path], root: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    return (path.relative_to(root).as_posix() for path in files if pattern.search(path.read_text()))


def _traced(root: Path, packages: str, what: str) -> list[str]:
    """The modules, from a process of its own in which only `root` is looked through for them."""
    words = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--root",
        str(root),
        "--packages",
        packages,
        "--child",
        what,
    ]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{what}: the traced command ended with {done.returncode}\n{done.stderr[-3000:]}")
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


# --- in the traced process ----------------------------------------------------------------------------------------


class Trace:
    """Collects whose functions are called while it is on."""

    def __init__(self, root: Path, see: Callable[[str, CodeType, Trace], None]) -> None:
        self.on = False
        self.names: set[str] = set()
        self._root, self._see = root, see
        self._known: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return"):
            return
        name = self._known.get(frame.f_code.co_filename)
        if name is None:
            name = self._known[frame.f_code.co_filename] = self._name(frame.f_code.co_filename)
        if not name:
            return
        self._see(event, frame.f_code, self)
        if self.on and event == "call" and frame.f_code.co_name != "<module>":
            self.names.add(name)

    def _name(self, file: str) -> str:
        path = Path(os.path.realpath(file))
        name = path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else ""
        return name if name.split("/")[0] in ROOMS else ""


def _in_loop(code: CodeType, function: str) -> bool:
    return code.co_filename.endswith("orchestrator/loop.py") and code.co_qualname == function


def _see_gradient(event: str, code: CodeType, trace: Trace) -> None:
    if _in_loop(code, "Loop.run"):
        trace.on = event == "call"


def _interrupting() -> Callable[[str, CodeType, Trace], None]:
    taken = 0

    def see(event: str, code: CodeType, trace: Trace) -> None:
        nonlocal taken
        if event == "call" and _in_loop(code, "Loop._take"):
            taken += 1
            if taken == ANSWERS:
                trace.on = True
                os.kill(os.getpid(), signal.SIGINT)

    return see


def _trace(root: Path, packages: list[str], what: str) -> list[str]:
    """Runs the command under the trace."""
    command = importlib.import_module("gradmux.cli.main" if packages == ["gradmux"] else "cli.main")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    trace = Trace(root, _see_gradient if what == "gradient" else _interrupting())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net.py").write_text(NET)
        job = Path(folder) / "job.toml"
        job.write_text(JOB.format(steps=1 if what == "gradient" else 500))
        threading.setprofile(trace)
        sys.setprofile(trace)
        code = command.run(["submit", str(job), "-q", "--home", f"{folder}/home"])
        sys.setprofile(None)
    expected = (0,) if what == "gradient" else (5, 130)
    if code not in expected or not trace.names:
        raise SystemExit(f"the command ended with exit code {code}")
    return sorted(trace.names)


if __name__ == "__main__":
    main()
