"""Where code comes from: the standard library, an installed package, the function's own image, or somewhere else.

A spec may name code by import path only where that code belongs to the worker's image: packages that are installed, and
the folders of shipped code. All other code travels inside the spec. The standard library makes no models, but runs
commands, so nothing of it may be named. Knows neither specs nor requests. Used by `models.py`, and by the orchestrator
to decide how code travels.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["OUR_PACKAGE", "OriginError", "comes_with_packages", "is_standard", "named"]

OUR_PACKAGE = "gradmux"
SHIPPED = "GRADMUX_CODE"
"""variable: folders of shipped code, separated as in PATH; where it is not set, Lambda's own LAMBDA_TASK_ROOT"""
PACKAGE_FOLDERS = ("site-packages", "dist-packages")

STANDARD = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
INSTALLED = [
    Path(folder)
    for folder in {
        *sysconfig.get_paths().values(),
        *site.getsitepackages(),
        site.getusersitepackages(),
        str(Path(sys.base_prefix) / "lib"),
    }
    if folder != sysconfig.get_path("data")
]


class OriginError(ValueError):
    """A name that leads to code which nobody has put into the worker's image."""


def named(module_name: str, attribute: str, role: str) -> Any:
    """What `module:attribute` names, when it and every module on the way belong to the image; no other is imported.

    Raises: OriginError for other modules, whether they define the function or only import it; ImportError and
    AttributeError where there is none.
    """
    where = f"{role} {f'{module_name}:{attribute}'!r}"
    root = module_name.partition(".")[0]
    found = importlib.util.find_spec(root) if root not in sys.modules else sys.modules[root].__spec__
    if found is not None:
        _require_image(root, _places(found), where)
    target: Any = importlib.import_module(module_name)
    _require_module(target, where)
    for part in attribute.split("."):
        target = getattr(target, part)
        if isinstance(target, ModuleType):
            _require_module(target, where)
    _require_definition(target, where)
    return target


def is_standard(module: ModuleType) -> bool:
    """Whether a module comes with Python itself: built in, frozen, or a file of its library."""
    file = getattr(module, "__file__", None)
    return _is_standard(module.__name__, [] if file is None else [file])


@cache
def comes_with_packages(file: str) -> bool:
    """Whether a file comes with Python or with an installed package, and not from the user's own files.

    Kept: a process has thousands of modules, and every model that is shipped looks at all of them.
    """
    path = Path(file)
    return any(path.is_relative_to(folder) for folder in INSTALLED)


def _places(found: ModuleSpec) -> list[str]:
    """The file of a module, or the folders of a package without one; empty when it is part of the interpreter."""
    if found.has_location and found.origin is not None:
        return [found.origin]
    return list(found.submodule_search_locations or ())


def _is_standard(name: str, places: Sequence[str]) -> bool:
    """A user's own module may have a standard one's name: what counts is where it lies."""
    if not places:
        return name.partition(".")[0] in sys.stdlib_module_names
    return any(_in_standard_library(place) for place in places)


@cache
def _in_standard_library(file: str) -> bool:
    path = Path(file)
    within = any(path.is_relative_to(folder) for folder in STANDARD)
    return within and not any(folder in path.parts for folder in PACKAGE_FOLDERS)


def _require_module(module: ModuleType, where: str) -> None:
    file = getattr(module, "__file__", None)
    places = [file] if file is not None else list(getattr(module, "__path__", ()))
    _require_image(module.__name__, places, where)


def _require_image(name: str, places: Sequence[str], where: str) -> None:
    """Raises OriginError unless a module is ours, an installed package's, or in a folder of shipped code."""
    if _is_standard(name, places):
        raise OriginError(f"{where}: {name} is of Python's standard library, which makes no model or loss")
    ours = name.partition(".")[0] == OUR_PACKAGE
    if not ours and not all(comes_with_packages(place) or _is_shipped(place) for place in places):
        raise OriginError(f"{where}: {name} is neither an installed package nor shipped code: send the code itself")


def _is_shipped(file: str) -> bool:
    folders = os.environ.get(SHIPPED, os.environ.get("LAMBDA_TASK_ROOT", ""))
    path = Path(file).resolve()
    return any(path.is_relative_to(Path(folder).resolve()) for folder in folders.split(os.pathsep) if folder)


def _require_definition(target: Any, where: str) -> None:
    """A package that imports `run` of `subprocess` offers it under its own name: what counts is who wrote it."""
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target) if callable(target) else target
    if not callable(target):
        raise OriginError(f"{where}: is {type(target).__name__}, expected a function or class")
    home = sys.modules.get(str(getattr(target, "__module__", None)))
    if home is not None and is_standard(home):
        raise OriginError(f"{where}: is {home.__name__}'s own, of Python's standard library")
