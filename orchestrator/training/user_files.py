"""Whose a file is: installed, so that workers have it too, or the user's own, which travels by value.

Installed is what lies in Python's own folders, on `PYTHONPATH`, or where a `.pth` file points: emulated workers inherit
all three. The user's own are the working directory, the folders of script and job file, packages installed for editing,
and whatever else a script puts on `sys.path`. The deepest folder that holds the file decides; where one is both, it is
the user's own. Knows nothing of pickles, nor of what an image may hold (`lambda_worker/origin.py`). Used by `code.py`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import site
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gradmux.lambda_worker.origin import INSTALLED


class Origin(Enum):
    """Whose a file is."""

    INSTALLED = "installed"
    OWN = "own"
    EITHER = "either"
    """in a folder of `PYTHONPATH` or a `.pth` below one of the user's own: source of theirs, or a folder of packages"""


@dataclass(frozen=True, slots=True)
class Places:
    """Folders at one moment, as they are written and with links resolved."""

    installed: tuple[str, ...]
    """of the interpreter"""
    added: tuple[str, ...]
    """by `PYTHONPATH` and `.pth` files"""
    own: tuple[str, ...]


_own_folders: set[str] = set()


def count_as_own(folder: Path) -> None:
    """From now on modules in `folder` (where the job file lies) are the user's own, also if `PYTHONPATH` names it."""
    _own_folders.add(str(folder.resolve()))


def places_now() -> Places:
    """The folders as they are now; equal while nothing changes, so that `origin_of` can keep its answers."""
    installed = _PACKAGES
    added = (*_python_path(os.environ.get("PYTHONPATH", "")), *_from_pth_files())
    installed += tuple(folder for folder in added if _holds_packages(folder))
    own = [folder for folder in (*_script_and_working(), *sorted(_own_folders)) if not _within(folder, installed)]
    return Places(installed, added, (*own, *_edited()))


@lru_cache(maxsize=100_000)
def origin_of(file: str, places: Places) -> Origin:
    """Whose a module's file is. Kept: a process has thousands of modules, and each model shipped looks at all."""
    for path in _forms(file):
        installed, added, own = (_deepest(path, roots) for roots in (places.installed, places.added, places.own))
        if max(installed, added, own) < 0:
            continue
        if own >= max(installed, added) and installed < own:
            return Origin.OWN
        return Origin.EITHER if own >= 0 and added > installed else Origin.INSTALLED
    return Origin.OWN


@lru_cache(maxsize=100_000)
def _forms(file: str) -> tuple[str, ...]:
    """As it is written and with links resolved: asked of all modules again whenever the places are others."""
    return _both_ways([file])


def _deepest(path: str, roots: Iterable[str]) -> int:
    """Length of the longest of the folders that `path` lies in; -1: in none."""
    return max((len(root) for root in roots if _within(path, (root,))), default=-1)


def _within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


@lru_cache(maxsize=8)
def _python_path(variable: str) -> tuple[str, ...]:
    entries = [] if sys.flags.ignore_environment else variable.split(os.pathsep)
    return _both_ways(entry for entry in entries if entry)


@cache
def _from_pth_files() -> tuple[str, ...]:
    return _both_ways(_pth_entries())


def _pth_entries() -> Iterator[str]:
    """The folders that `.pth` files of the interpreter name and that are searched for modules."""
    searched = {os.path.abspath(entry) for entry in sys.path}
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    for file in (file for folder in folders for file in sorted(Path(folder).glob("*.pth"))):
        with suppress(OSError, UnicodeDecodeError):
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = os.path.abspath(file.parent / line.strip())
                if line.strip() and not line.startswith(("#", "import ", "import\t")) and entry in searched:
                    yield entry


@cache
def _holds_packages(folder: str) -> bool:
    """Did an installer put packages there (`pip install --target`, the folder of another environment)?"""
    return any(True for _ in Path(folder).glob("*.dist-info"))


@cache
def _edited() -> tuple[str, ...]:
    """Folders of packages that are installed for editing (PEP 610): they change, and no image has them."""
    return _both_ways(_edited_folders())


def _edited_folders() -> Iterator[str]:
    for distribution in importlib.metadata.distributions():
        with suppress(Exception):  # a broken record of another package is not ours to complain of
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
            if origin.get("dir_info", {}).get("editable"):
                yield from _sources(Path(unquote(urlsplit(origin["url"]).path)))


def _sources(project: Path) -> Iterator[str]:
    """Where a project's modules lie: as deep as a `.pth` file can name them."""
    yield str(project)
    yield from (entry for entry in _pth_entries() if _within(entry, [str(project)]))


def _script_and_working() -> Iterator[str]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script:
        yield os.path.dirname(os.path.realpath(script))
    with suppress(FileNotFoundError):  # the working directory is gone
        yield os.getcwd()


def _both_ways(folders: Iterable[str]) -> tuple[str, ...]:
    made = [form for folder in folders for form in (os.path.abspath(folder), os.path.realpath(folder))]
    return tuple(dict.fromkeys(made))


_PACKAGES = _both_ways(map(str, INSTALLED))
