"""A process that has nothing of the user's but what is sent to it: it builds models as a worker does, and plays them.

Argument 1 is the descriptor of a socket. Each message brings two pipes: out of one comes the pickle of a `Part`, into
the other goes that of what was `Told`.

It imports torch and the worker's code once and forks for every part, so that no part sees what another has imported.
The orchestrator starts it, in an empty folder; it ends when the other end of the socket is closed. It computes with one
thread, since what was forked from a process with a thread pool hangs. Read `gradient.py` for what is played.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_ELEMENTS = 200_000
"""of a gradient that are told"""
TIMEOUT_S = 60
"""after which a part that has not answered is ended by the kernel"""
ANYWHERE = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/")


@dataclass(frozen=True)
class Part:
    """What to build and to play."""

    spec: bytes
    """of a model: `models.encode_spec`"""
    snapshot: str
    """file of its weights: `flat.pieces`, little endian"""
    passes: tuple[tuple[dict[str, NDArray[Any]], NDArray[Any]], ...]
    """rows of each pass, by column as shards hold them, and their numbers; of the last is told"""
    prepare: dict[str, Any]
    """what happens to rows: `transforms.Preparation.described`"""
    hidden: frozenset[str] = frozenset()
    """modules, by their first name, that are taken not to be installed"""


@dataclass(frozen=True)
class Told:
    """What came of it."""

    sums: tuple[float, ...] = ()
    gradient: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    """every so-manieth element, `MOST_ELEMENTS` at most"""
    missing_module: str = ""
    missing_file: str = ""
    error: str = ""
    """in one line, when it failed"""
    files: tuple[str, ...] = ()
    """that were read, and that only this machine has"""
    imported: tuple[str, ...] = ()
    """modules, by their first name, beyond what a worker imports by itself"""


def main() -> None:
    """Answers parts until the other end of the socket is closed."""
    control = socket.socket(fileno=int(sys.argv[-1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for those that answer
    _import_all()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            break
        if os.fork() == 0:
            control.close()
            _answer(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
    with suppress(OSError):  # a model that was tried has left something there
        os.rmdir(os.getcwd())


def _import_all() -> None:
    import torch

    torch.set_num_threads(1)
    from gradmux.lambda_worker import carried, gradient, models  # noqa: F401


def _answer(reading: int, writing: int) -> None:
    """The life of a fork."""
    code = 1
    try:
        signal.alarm(TIMEOUT_S)
        with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as sink:
            sink.write(pickle.dumps(_told(pickle.loads(source.read()))))
        code = 0
    finally:
        os._exit(code)


def _told(part: Part) -> Told:
    opened: list[str] = []
    sys.addaudithook(_noting(opened))
    before = _first_names()
    sys.meta_path.insert(0, _Hiding(part.hidden))
    try:
        sums, gradient = _play(part)
    except ModuleNotFoundError as error:
        return Told(missing_module=error.name or "", error=_line(error))
    except FileNotFoundError as error:
        return Told(missing_file=str(error.filename or ""), error=_line(error))
    except BaseException as error:  # the user's own code may raise anything, or leave
        return Told(error=_line(error))
    files = _foreign([file for file in opened if file != part.snapshot])
    imported = tuple(sorted(_first_names() - before - sys.stdlib_module_names))
    return Told(tuple(sums), gradient, files=files, imported=imported)


def _first_names() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}


class _Hiding(MetaPathFinder):
    """Is asked for modules first, and says of these that they are not there."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.partition(".")[0] in self._hidden:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _play(part: Part) -> tuple[list[float], NDArray[Any]]:
    from gradmux.lambda_worker import flat
    from gradmux.lambda_worker.gradient import Batch, spread_sum
    from gradmux.lambda_worker.models import build, parse_spec, resolve
    from gradmux.lambda_worker.transforms import preparation_of

    model = build(parse_spec(part.spec))
    flat.load_snapshot(model.module, flat.from_file(part.snapshot, str(model.dtype).removeprefix("torch.")))
    model.hold()
    preparation = preparation_of(part.prepare)
    function = None if preparation.code is None else resolve(preparation.code, "transform")
    for arrays, ids in part.passes:
        coded = spread_sum(model, Batch(*preparation.rows(arrays, ids, 0, function, model.dtype)), MOST_ELEMENTS)
    return coded.sums.tolist(), coded.gradient.numpy()


def _noting(opened: list[str]) -> Any:
    def note(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and args and isinstance(args[0], str):
            opened.append(args[0])

    return note


def _foreign(opened: list[str]) -> tuple[str, ...]:
    """Those files that come with neither Python nor a package."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # may hold links: asked of paths as opened
    files = {os.path.realpath(file) for file in opened if not file.startswith(ours)}
    known = (
        *ANYWHERE,
        *(folder for folder in sys.path if folder),
        sys.prefix,
        sys.base_prefix,
    )
    return tuple(sorted(file for file in files if not file.startswith(known) and os.path.isfile(file)))


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
