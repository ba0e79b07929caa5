"""The user's functions: found by name here, shipped to workers that do not have the user's files.

A function of an installed package travels as its import path, any other by cloudpickle, with the user's own modules in
it by value: a worker needs nothing but its image. Knows neither models nor stores. Read next: `user_files.py` (whose a
module is), `models.py`.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

import cloudpickle

from gradmux.lambda_worker.carried import Carried, Sources, as_property, bundle, with_cache
from gradmux.lambda_worker.origin import OUR_PACKAGE, comes_with_packages, is_standard
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.former import present_name
from gradmux.orchestrator.training.user_files import Origin, count_as_own, origin_of, places_now

Code: TypeAlias = str | Callable[..., Any]
"""A function, or "module:function"."""
NO_SOURCES: Sources = MappingProxyType({})


def find_code(code: Code, role: str) -> Callable[..., Any]:
    """The function itself. Raises ConfigError that begins with `role` when there is none."""
    if not isinstance(code, str):
        return code
    code = present_code(code)
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


def present_code(code: str) -> str:
    """ "module:function" under the module's present name, where it was one of ours under another."""
    module, colon, attribute = code.partition(":")
    return f"{present_name(module)}{colon}{attribute}"


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Within it, modules in `folder` (where the job file lies) are found before all others."""
    place = str(folder.resolve())
    count_as_own(folder)
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(place)


def ship_code(code: Code, role: str, beside: Sources = NO_SOURCES) -> str | bytes:
    """What a worker gets: an import path when its image has the function, else cloudpickle's bytes.

    `beside`: modules of the user's own that it imports while it runs, and that travel beside it. Raises: ConfigError
    when it cannot be pickled (an open file, a lock or a running generator in it, for example).
    """
    code = present_code(code) if isinstance(code, str) else code
    function = find_code(code, role)
    own, either = _own_modules()
    if isinstance(code, str) and _is_in_images(code.partition(":")[0], own + either):
        return code
    try:
        return _pickled(function, own + either, beside)
    except Exception as error:  # pickling runs the user's own __reduce__ and __getstate__
        with suppress(Exception):  # what cannot be copied, but lies on PYTHONPATH, workers may import
            if either:
                return _pickled(function, own, beside)
        raise ConfigError(f"{role} {_label(code)} cannot be sent to workers: {first_line(error)}") from error


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


def _is_in_images(module_name: str, users: list[ModuleType]) -> bool:
    """Does a module come with Python or with an installed package? What only a path leads to goes as a reference."""
    module = sys.modules.get(module_name)
    file = getattr(module, "__file__", None)
    ours = module_name.partition(".")[0] == OUR_PACKAGE
    return file is None or ours or (comes_with_packages(file) and module not in users)


def _pickled(function: Callable[..., Any], modules: list[ModuleType], beside: Sources) -> bytes:
    if isinstance(function, Carried):
        beside = {**function.sources, **beside}
        function = function.function
    stream = io.BytesIO()
    with _by_value(modules):
        _Pickler(stream).dump(function)
    return bundle(beside, stream.getvalue()) if beside else stream.getvalue()


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """cloudpickle, which also takes apart what wraps a function of the user's own but is none: an lru_cache, a
    cached_property.
    """


def _reduced_cache(cached: Any) -> Any:
    """A cache around a function, empty; by name where workers have that."""
    function, settings = cached.__wrapped__, cached.cache_parameters()
    if _is_by_value(function):
        return with_cache, (function, settings["maxsize"], settings["typed"])
    return cached.__qualname__


def _is_by_value(function: Any) -> bool:
    """Does cloudpickle put this function itself into a pickle?"""
    name = getattr(function, "__module__", None) or "__main__"
    registered = cloudpickle.list_registry_pickle_by_value()
    parents = {name, *(name.rsplit(".", cut)[0] for cut in range(1, name.count(".") + 1))}
    local = "<locals>" in getattr(function, "__qualname__", "")
    return local or name == "__main__" or name not in sys.modules or bool(parents & set(registered))


def _reduced_property(found: functools.cached_property[Any]) -> Any:
    return as_property, (found.func, found.attrname)


_Pickler.dispatch_table = ChainMap(
    {functools._lru_cache_wrapper: _reduced_cache, functools.cached_property: _reduced_property},
    cloudpickle.CloudPickler.dispatch_table,
)


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    """Within it, cloudpickle puts the content of these modules into the pickle, not their names."""
    already = set(cloudpickle.list_registry_pickle_by_value())
    ours = [module for module in modules if module.__name__ not in already]
    for module in ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            cloudpickle.unregister_pickle_by_value(module)


def _own_modules() -> tuple[list[ModuleType], list[ModuleType]]:
    """Modules that are imported and the user's own; and those that may be either theirs or a dependency."""
    places, own, either = places_now(), list[ModuleType](), list[ModuleType]()
    for module in filter(_may_be_users, list(sys.modules.values())):
        assert module.__file__ is not None
        origin = origin_of(module.__file__, places)
        if origin is not Origin.INSTALLED:
            (own if origin is Origin.OWN else either).append(module)
    return own, either


def _may_be_users(module: ModuleType) -> bool:
    """It has a file (torch makes modules that only name one) and is not ours. __main__ goes by value anyway."""
    file, name = getattr(module, "__file__", None), getattr(module, "__name__", "")
    ours = name.partition(".")[0] == OUR_PACKAGE
    real = isinstance(file, str) and (os.path.isabs(file) or os.path.exists(file))
    return real and name != "__main__" and sys.modules.get(name) is module and not ours
