"""The user's own functions: found by name, called once to see that they work, packed for workers.

Code that workers do not have travels by value (cloudpickle); what is installed as a package travels by name. Knows no
job and no fleet. Read next: `wiring.py`.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from orchestrator.errors import ConfigError

OURS = ("orchestrator", "lambda_worker", "infra")
"""Never shipped by value: the worker has its own, or must not have it."""


def find_function(name: str, folder: Path | None, where: str) -> Callable[..., Any]:
    """The function "module:function"; modules in `folder` are found first. `where` names its place in the job.

    Raises: ConfigError when there is none, with the closest name; or when the module itself raises.
    """
    module_name, _, attribute = name.partition(":")
    with _importing_from(folder):
        module = _import(module_name, f"{where} = {name!r}", folder)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, dir(found), n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"{where} = {name!r}: {module_name} has no {attribute!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{where} = {name!r}: is a {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function


def call(function: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """What the user's function returns. Raises: ConfigError in one line for anything that it raises."""
    try:
        return function(**arguments)
    except Exception as error:  # the user's own code may raise anything
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ConfigError(f"{where}: {_name(function)}({shown}) raised {_said(error)}") from error


def pack(function: Callable[..., Any], where: str) -> bytes | str:
    """How workers get the function: its name when it belongs to an installed package, else its cloudpickle.

    Raises: ConfigError when it refers to something that cannot be pickled.
    """
    import cloudpickle

    module = sys.modules.get(function.__module__)
    if module is not None and module.__name__ != "__main__" and _installed(module):
        return f"{function.__module__}:{function.__qualname__}"
    with _shipping_user_modules():
        try:
            packed: bytes = cloudpickle.dumps(function)
        except Exception as error:  # the objects that a closure holds may raise anything
            raise ConfigError(f"{where}: {_name(function)} cannot be sent to workers: {_said(error)}") from error
    return packed


def _import(name: str, what: str, folder: Path | None) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            beside = f" in {folder} or" if folder is not None else ""
            raise ConfigError(f"{what}: there is no module {name!r}{beside} among the installed ones") from None
        raise ConfigError(f"{what}: importing {name} raised {_said(error)}") from error
    except Exception as error:  # the user's own module may raise anything
        raise ConfigError(f"{what}: importing {name} raised {_said(error)}") from error


@contextmanager
def _importing_from(folder: Path | None) -> Iterator[None]:
    """Puts `folder` first among the places where modules are looked for."""
    if folder is None:
        yield
        return
    place = str(folder.resolve())
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(place)


@contextmanager
def _shipping_user_modules() -> Iterator[None]:
    """While open, everything defined in modules that are the user's own is pickled by value."""
    import cloudpickle

    modules = [module for module in list(sys.modules.values()) if _is_users(module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: ModuleType) -> bool:
    known = getattr(module, "__file__", None)
    if known is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] in OURS:
        return False
    return not _installed(module)


def _installed(module: ModuleType) -> bool:
    """Does it belong to Python or to an installed distribution?"""
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    path = Path(file).resolve()
    places = {Path(place).resolve() for key, place in sysconfig.get_paths().items() if key in _INSTALLED}
    return any(path.is_relative_to(place) for place in places)


_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _said(error: Exception) -> str:
    """The exception in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
