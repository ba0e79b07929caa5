"""Names from before everything of ours lay in one package: what they are called now.

Runs that were begun with version 0.1.0 keep such names in their folders, and plug-ins written for it import them. Knows
no files. Used by `training/code.py`, `runs/materials.py`, `backends.py` and `schemes/registry.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

PACKAGE = "gradmux"
FORMER = ("cli", "infra", "lambda_worker", "orchestrator")
"""packages that were top-level"""
MOVED = (("gradmux.cli.demo", "gradmux.orchestrator.demo"),)
"""modules that have moved since: (before, after)"""


def present_name(module: str) -> str:
    """What `module` is called now; as it is where it never was ours, or where the user has a module of that name."""
    top = module.partition(".")[0]
    if top not in FORMER or (_folder(top) != _folder(f"{PACKAGE}.{top}") and _exists(module)):
        return module
    return next((name for name in _candidates(f"{PACKAGE}.{module}") if _exists(name)), module)


def why_missing(error: BaseException) -> str:
    """What to say, after the error itself, where a module is missing that was ours; else empty."""
    name = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    if name.partition(".")[0] not in FORMER:
        return ""
    return f"; what gradmux called {name} in version 0.1.0 is {PACKAGE}.{name} now"


def _candidates(name: str) -> Iterator[str]:
    yield name
    for before, after in MOVED:
        if f"{name}.".startswith(f"{before}."):
            yield after + name.removeprefix(before)


def _folder(package: str) -> str:
    """Where it lies, links resolved: from the root of a checkout the former names lead to our own folders."""
    with suppress(ImportError, AttributeError, ValueError):
        found = find_spec(package)
        if found is not None:
            return os.path.realpath(next(iter(found.submodule_search_locations or ()), found.origin or ""))
    return ""


def _exists(module: str) -> bool:
    with suppress(ImportError, AttributeError, ValueError):  # of a package on the way to it
        return find_spec(module) is not None
    return False
