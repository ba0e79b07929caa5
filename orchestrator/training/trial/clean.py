"""A model in a process that has nothing but what is shipped: are the user's modules and files all there, and does it
compute the same?

One warm process, in an empty folder, forks for every question (`lambda_worker/rehearsal.py`). Modules of the user's own
that code imports only while it runs are shipped beside it, and asked about again; what cannot be shipped is named in
one line. Read next: `lambda_worker/carried.py`.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from gradmux.lambda_worker import rehearsal
from gradmux.lambda_worker.carried import Source
from gradmux.lambda_worker.rehearsal import TIMEOUT_S, Part, Told
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.training.user_files import Origin, origin_of, places_now

BOOT = (
    "import sys; place = sys.argv[1]; sys.path.insert(0, place); "
    "from gradmux.lambda_worker import rehearsal; sys.path.remove(place); rehearsal.main()"
)
AGREE = 1e-4
"""relative: sums that another number of threads adds differ by less"""
MOST_MODULES = 1000
MOST_TEXT = 8 * 2**20
"""characters of the modules that travel beside a function, in all"""


class CleanProcess:
    """The warm process. Forks of the process that started it may ask it, too."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(Path(rehearsal.__file__).parents[2]), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.mkdtemp(prefix="gradmux-trial-"),  # which it removes at its end,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._owner = os.getpid()
        atexit.register(self.close)

    def ask(self, part: Part) -> Told:
        """What comes of it. Raises: OSError when the process has ended."""
        (reading, to_fork), (from_fork, writing) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._control, [b"?"], [reading, writing])
        finally:
            os.close(reading)
            os.close(writing)
        with os.fdopen(to_fork, "wb") as sink, os.fdopen(from_fork, "rb") as source:
            sink.write(pickle.dumps(part))
            sink.close()
            answer = source.read()
        if not answer:
            return Told(error=f"the process ended without an answer, or took more than {TIMEOUT_S} s")
        told: Told = pickle.loads(answer)
        return told

    def close(self) -> None:
        """Ends it. What was forked from the process that started it leaves it alone."""
        if os.getpid() == self._owner:
            self._control.close()
            self._process.wait()


@cache
def clean_process() -> CleanProcess:
    """The one of this process; started at the first call, which does not wait until it is warm."""
    return CleanProcess()


def _environment() -> dict[str, str]:
    """Ours, but no folder of the user's own is searched for modules."""
    own = set(places_now().own)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in paths if path and os.path.abspath(path) not in own]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(kept), "OMP_NUM_THREADS": "1"}


Ship = Callable[[Mapping[str, Source]], bytes]
"""modules that travel beside its functions -> a model's spec"""


def find_missing(name: str, ship: Ship, part: Part, expected: Told) -> tuple[dict[str, Source], Told]:
    """The modules that must travel beside the model's functions, and what a worker will compute with them.

    `part.spec` is that without any, `expected` what this process computed. Raises: ConfigError that names the model.
    """
    carried: dict[str, Source] = {}
    while True:
        told = _asked(name, part)
        module = told.missing_module
        if not module:
            break
        found = _sources(module)
        if not found or module in carried or len(carried) > MOST_MODULES:
            raise ConfigError(_without_module(name, module, told))
        carried.update(found)
        if sum(len(source.text) for source in carried.values()) > MOST_TEXT:
            raise ConfigError(
                f"model {name!r}: the modules that it imports while it runs are too much to be sent: install them as a "
                "package"
            )
        part = replace(part, spec=ship(carried))
    _judge(name, told, expected)
    return carried, told


def _asked(name: str, part: Part) -> Told:
    try:
        return clean_process().ask(part)
    except OSError as error:
        clean_process.cache_clear()
        raise ConfigError(f"model {name!r}: the process in which it is tried has ended: {error}") from error


def _judge(name: str, told: Told, expected: Told) -> None:
    where = f"model {name!r}"
    if told.missing_file:
        raise ConfigError(
            f"{where}: its code reads {told.missing_file!r}, which workers do not have: read it when the module is "
            "imported, or pass its content by args"
        )
    if told.error:
        raise ConfigError(f"{where}: it fails where nothing is but what workers get: {told.error}")
    if not _agree(told, expected):
        raise ConfigError(
            f"{where}: another process computes another gradient of the same rows, weights and seed: something in it "
            "is neither a weight nor a buffer and depends on the process (time, os.urandom, hash(), the environment, "
            "or which rows came first): derive it from args, or from torch's, numpy's or random's seeded numbers"
        )


def _agree(one: Told, other: Told) -> bool:
    pairs = ((one.gradient, other.gradient), (np.array(one.sums), np.array(other.sums)))
    return all(mine.shape == theirs.shape and _close(mine, theirs) for mine, theirs in pairs)


def _close(mine: np.ndarray, theirs: np.ndarray) -> bool:
    size = float(np.linalg.norm(theirs.astype(float)))
    return float(np.linalg.norm(mine.astype(float) - theirs.astype(float))) <= AGREE * (size or 1.0)


def _without_module(name: str, module: str, told: Told) -> str:
    spec = _spec_of(module)
    if spec is None:
        return f"model {name!r}: its code needs the module {module!r}, which workers do not have: {told.error}"
    return (
        f"model {name!r}: its code imports {module!r} while it runs, which workers do not have and which is no Python "
        f"source that could be sent ({spec.origin}): install it as a package"
    )


def _sources(module: str) -> dict[str, Source]:
    """The source of one of the user's modules, of a package with all its modules; none for what is not theirs."""
    spec = _spec_of(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return {module: Source("", package=True)} if spec is not None and spec.submodule_search_locations else {}
    if origin_of(spec.origin, places_now()) is Origin.INSTALLED:
        return {}
    if spec.submodule_search_locations is None:
        return {module: _read(Path(spec.origin), package=False)}
    root = Path(spec.origin).parent
    found = {}
    for file in sorted(root.rglob("*.py"))[:MOST_MODULES]:
        parts = file.relative_to(root).with_suffix("").parts
        package = parts[-1] == "__init__"
        found[".".join((module, *(parts[:-1] if package else parts)))] = _read(file, package)
    return found


def _read(file: Path, package: bool) -> Source:
    return Source(file.read_text(encoding="utf-8"), package, str(file))


def _spec_of(module: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
