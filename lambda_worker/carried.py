"""Code that brings along the sources of the user's modules which it imports only while it runs.

cloudpickle puts what a function refers to into its pickle, but an `import` inside the function runs on the worker,
where the user's folder is not. Such modules travel as source, beside the function, and are imported from there. A
sandbox may serve several runs, each with modules of its own under the same names: whichever code is called brings its
own into place first. Knows no model but that a factory returns one. Read next: `models.py`, which unpickles it.
"""

from __future__ import annotations

import functools
import importlib.util
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

__all__ = ["Carried", "Source", "Sources", "as_property", "bundle", "unpacked", "with_cache"]


@dataclass(frozen=True, slots=True)
class Source:
    """One module."""

    text: str
    package: bool = False
    file: str = ""
    """where it came from, for tracebacks"""


Sources: TypeAlias = Mapping[str, Source]
"""by full name"""


class Carried:
    """A function with its modules: called like the function itself, and pickled with both."""

    def __init__(self, function: Callable[..., Any], sources: Sources) -> None:
        functools.update_wrapper(self, function)
        self.function, self.sources = function, dict(sources)

    def __call__(self, *args: Any, **named: Any) -> Any:
        _FINDER.bring(self.sources)
        made = self.function(*args, **named)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(made, torch.nn.Module):
            made.register_forward_pre_hook(_Bringing(self.sources))
        return made

    def __reduce__(self) -> Any:
        import cloudpickle

        return unpacked, (self.sources, cloudpickle.dumps(self.function))


class _Bundle:
    """A pickle with its modules."""

    def __init__(self, sources: Sources, code: bytes) -> None:
        self._unpacked = dict(sources), code

    def __reduce__(self) -> Any:
        return unpacked, self._unpacked


def bundle(sources: Sources, code: bytes) -> bytes:
    """The pickle of what was pickled as `code`, and of these modules beside it."""
    return pickle.dumps(_Bundle(sources, code))


class _Bringing:
    """Before every forward."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def __call__(self, *_: Any) -> None:
        _FINDER.bring(self.sources)


def unpacked(sources: Sources, code: bytes) -> Any:
    """What was pickled as `code`, able to import these modules; functions as `Carried`."""
    _FINDER.bring(sources)
    found = pickle.loads(code)
    return Carried(found, sources) if isinstance(found, FunctionType) else found


def with_cache(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Callable[..., Any]:
    """A function in an lru_cache, which is no function itself, so that pickles only name it."""
    return functools.lru_cache(maxsize, typed)(function)


def as_property(function: Callable[[Any], Any], name: str | None) -> functools.cached_property[Any]:
    """A cached_property, which has a lock in Python 3.11, and is not told its name where a class comes of a pickle."""
    made = functools.cached_property(function)
    made.attrname = name
    return made


class _Finder(MetaPathFinder, InspectLoader):
    """Finds the modules that were brought last, after all that are installed."""

    def __init__(self) -> None:
        self._sources: Sources = {}
        self._made: dict[str, ModuleType] = {}
        """by full name, those that were imported from here"""

    def bring(self, sources: Sources) -> None:
        """From now on these are found. Others of the same names, from here, are forgotten."""
        if sources is self._sources:
            return
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        for name, module in list(self._made.items()):
            if sources.get(name) != self._sources.get(name):
                del self._made[name]
                if sys.modules.get(name) is module:
                    del sys.modules[name]
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self._sources.get(fullname)
        if source is None:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=source.file, is_package=source.package)

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname].text

    def is_package(self, fullname: str) -> bool:
        return self._sources[fullname].package

    def get_code(self, fullname: str) -> Any:
        source = self._sources[fullname]
        return compile(source.text, source.file or f"<{fullname}>", "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__file__ = self._sources[name].file or None
        self._made[name] = module
        exec(self.get_code(name), module.__dict__)


_FINDER = _Finder()
