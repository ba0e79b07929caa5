"""The user's functions: found by name here, shipped to workers that do not have the user's files.

A function of an installed package travels as its import path, any other by cloudpickle, with the user's own modules in
it by value: a worker needs nothing but its image. Knows neither models nor stores. Read `models.py` next.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import cloudpickle

from gradmux.lambda_worker.origin import OUR_PACKAGE, comes_with_packages, is_standard
from gradmux.orchestrator.errors import ConfigError

Code: TypeAlias = str | Callable[..., Any]
"""A function, or "module:function"."""


def find_code(code: Code, role: str) -> Callable[..., Any]:
    """The function itself. Raises ConfigError that begins with `role` when there is none."""
    if not isinstance(code, str):
        return code
    module_name, _, attribute = code.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{role} {code!r}: expected module:function")
    found: Any = _import(module_name, f"{role} {code!r}")
    standard = is_standard(found)
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, dir(found), n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"{role} {code!r}: {module_name} has no {attribute!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{role} {code!r}: is no function, but {type(found).__name__}")
    if standard:
        raise ConfigError(f"{role} {code!r}: {module_name} is Python's own; name a function of yours or of a package")
    return found  # type: ignore[no-any-return]


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Within it, modules in `folder` (where the job file lies) are found before all others."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(place)


def ship_code(code: Code, role: str) -> str | bytes:
    """What a worker gets: an import path when its image has the function, else cloudpickle's bytes.

    Raises: ConfigError when it cannot be pickled (an open file, a lock or a running generator in it, for example).
    """
    function = find_code(code, role)
    if isinstance(code, str) and _is_installed(code.partition(":")[0]):
        return code
    try:
        with _own_modules_by_value():
            pickled: bytes = cloudpickle.dumps(function)
    except Exception as error:  # pickling runs the user's own __reduce__ and __getstate__
        raise ConfigError(f"{role} {_label(code)} cannot be sent to workers: {first_line(error)}") from error
    return pickled


def first_line(error: BaseException) -> str:
    """An exception's message in one line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _import(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{where}: there is no module {name!r}, installed or beside the job file") from None
        raise ConfigError(f"{where}: importing {name} needs {error.name}, which is not installed") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything, and a script may leave
        raise ConfigError(f"{where}: importing {name} raised {type(error).__name__}: {first_line(error)}") from error


def _label(code: Code) -> str:
    return repr(code) if isinstance(code, str) else getattr(code, "__qualname__", type(code).__name__)


def _is_installed(module_name: str) -> bool:
    """Whether a module comes with Python or with a package, and not from the user's own files."""
    module = sys.modules.get(module_name)
    return module is None or not _is_users(module)


@contextmanager
def _own_modules_by_value() -> Iterator[None]:
    """Within it, cloudpickle puts the content of the user's modules into the pickle, not their names."""
    modules = [module for module in list(sys.modules.values()) if _is_users(module)]
    already = set(cloudpickle.list_registry_pickle_by_value())
    ours = [module for module in modules if module.__name__ not in already]
    for module in ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: ModuleType) -> bool:
    """A module of the user's: a file that is neither installed nor ours. __main__ goes by value anyway."""
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "")
    if not file or name == "__main__" or sys.modules.get(name) is not module or name.partition(".")[0] == OUR_PACKAGE:
        return False
    return not comes_with_packages(file)
