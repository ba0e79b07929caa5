"""The table of schemes: names, parameters, and how text becomes a scheme object.

A scheme defined elsewhere joins by `register(info)`, or by an entry point of group "gradmux.schemes" that names its
`SchemeInfo`. Every mistake of the user is one `ConfigError` line that says what fits. Read next: any scheme's file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points

import numpy as np

from gradmux.orchestrator.errors import ConfigError, GradmuxError, SchemeFault, raised_at
from gradmux.orchestrator.former import why_missing
from gradmux.orchestrator.schemes import (
    approximate,
    backup,
    fastest_k,
    gradient_coding,
    grouping,
    lazy_family,
    multiplexed,
    partial,
    pipeline,
    pipeline_auto,
    selective_repeat,
    stretch,
    uncoded,
)
from gradmux.orchestrator.schemes.passes import in_passes
from gradmux.orchestrator.schemes.scheme import Context, Parameter, Params, Scheme, SchemeInfo

ENTRY_POINTS = "gradmux.schemes"
SAME_SIZE = 1e-12
"""sizes of chunks that differ by less are equal"""

REGISTRY: dict[str, SchemeInfo] = {
    info.name: info
    for info in (
        uncoded.INFO,
        fastest_k.INFO,
        backup.INFO,
        gradient_coding.INFO,
        partial.INFO,
        approximate.INFO,
        selective_repeat.INFO,
        multiplexed.INFO,
        pipeline.INFO,
        pipeline_auto.INFO,
        stretch.INFO,
        grouping.INFO,
        *lazy_family.INFOS,
    )
}
"""Name -> scheme, in the order in which lists show them."""
OURS = frozenset(REGISTRY)
"""those that come with the project, and are tested with it"""


def register(info: SchemeInfo) -> None:
    """Adds a scheme; the same one twice is fine. Raises: ConfigError when its name is taken by another."""
    known = REGISTRY.setdefault(info.name, info)
    if known is not info:
        raise ConfigError(f"scheme {info.name!r} is already registered ({known.title}): give yours another name")


def load_plugins() -> tuple[str, ...]:
    """Registers the schemes that installed distributions offer; why any of them cannot be had, in one line each.

    Importing them runs their code, which may raise anything: none keeps the others from being loaded.
    """
    troubles = (_trouble(point) for point in entry_points(group=ENTRY_POINTS))
    return tuple(filter(None, troubles))


def _trouble(point: EntryPoint) -> str:
    """Why the scheme that it names is not registered; empty when it is."""
    of = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    try:
        info = point.load()
    except Exception as error:
        reason = str(error).partition("\n")[0]
        named = f"scheme {point.name!r}{of} cannot be loaded from {point.value}"
        return f"{named}: {type(error).__name__}: {reason}{why_missing(error)}"
    if not isinstance(info, SchemeInfo):
        return f"scheme {point.name!r}{of}: {point.value} is a {type(info).__name__}, not a SchemeInfo"
    try:
        register(info)
    except ConfigError as error:
        return f"scheme {point.name!r}{of}: {error}"
    return ""


def get(name: str) -> SchemeInfo:
    """The scheme called `name`, plugins included. Raises: ConfigError with the closest name and all names."""
    troubles = () if name in REGISTRY else load_plugins()
    if name not in REGISTRY:
        unknown = f"unknown scheme {name!r}{_closest(name, REGISTRY)}; schemes: {', '.join(REGISTRY)}"
        raise ConfigError("\n".join((*troubles, unknown)))
    return REGISTRY[name]


def parse_params(info: SchemeInfo, given: Mapping[str, str | int | float]) -> dict[str, int | float | str]:
    """Long name -> value for all parameters of `info`, from long names or letters and text or numbers.

    Raises: ConfigError for an unknown, missing or doubly given parameter, or a value of the wrong type.
    """
    by_key = {key: parameter for parameter in info.parameters for key in (parameter.letter, parameter.name)}
    values: dict[str, int | float | str] = {}
    for key, value in given.items():
        if key not in by_key:
            raise ConfigError(f"{info.name} has no parameter {key!r}{_closest(key, by_key)}; {_takes(info)}")
        parameter = by_key[key]
        if parameter.name in values:
            raise ConfigError(f"{info.name}: {_label(parameter)} is given twice: keep one of {_spellings(parameter)}")
        values[parameter.name] = _value(info, parameter, value)
    return {parameter.name: _chosen(info, parameter, values) for parameter in info.parameters}


def build_scheme(name: str, given: Mapping[str, str | int | float], context: Context) -> Scheme:
    """The scheme `name` with these parameters for `context`. Raises: ConfigError for anything that does not fit.

    Raises: SchemeFault when the scheme's own code raises anything else.
    """
    info = get(name)
    if context.workers < 1:
        raise ConfigError(f"workers (n) = {context.workers}: at least 1 worker is needed")
    if context.jobs < 1:
        raise ConfigError(f"jobs (J) = {context.jobs}: at least 1 gradient is needed")
    if context.passes is not None and context.passes < 1:
        raise ConfigError(f"passes (P) = {context.passes}: a batch has at least 1 pass")
    if context.seed < 0:
        raise ConfigError(f"seed = {context.seed}: use a whole number >= 0")
    params: Params = parse_params(info, given)
    try:
        return _in_passes(_under(info.name, info.build(params, context)), context.passes)
    except GradmuxError:
        raise
    except Exception as error:  # a scheme from elsewhere may raise anything
        raised = f"its build raised {type(error).__name__}: {str(error).partition(chr(10))[0]} ({raised_at(error)})"
        raise SchemeFault(name, "", raised).before_any_worker() from error


def _under(name: str, scheme: Scheme) -> Scheme:
    """`scheme` under the name that it is registered by, where one class serves several."""
    if getattr(scheme, "name", name) != name:
        with suppress(AttributeError):
            vars(scheme)["name"] = name
    return scheme


def _in_passes(scheme: Scheme, passes: int | None) -> Scheme:
    """`scheme` with chunks that are whole passes. Raises: SchemeFault when its sizes are others and cannot be set."""
    asked = np.asarray(getattr(scheme, "chunk_sizes", ()), dtype=np.float64)
    if passes is None or asked.ndim != 1 or not (asked > 0).all() or not asked.size:
        return scheme  # what is wrong with them is told by `checked.py`
    sizes = in_passes(asked, passes)
    if np.allclose(sizes, asked, rtol=0, atol=SAME_SIZE):
        return scheme
    try:
        scheme.chunk_sizes, scheme.passes = sizes, passes  # type: ignore[misc, attr-defined]
    except AttributeError:
        told = f"its chunk_sizes cannot be set to multiples of 1/{passes}: make it an attribute, or use Context.passes"
        raise SchemeFault(scheme.name, "", told).before_any_worker() from None
    return scheme


def _chosen(info: SchemeInfo, parameter: Parameter, values: Mapping[str, int | float | str]) -> int | float | str:
    value = values.get(parameter.name, parameter.default)
    if value is None:
        raise ConfigError(f"{info.name} needs {_label(parameter)}: {parameter.meaning}; {_takes(info)}")
    return value


def _value(info: SchemeInfo, parameter: Parameter, given: str | int | float) -> int | float | str:
    """`given` as the parameter's type; 3, "3" and 3.0 are all the whole number 3."""
    if parameter.kind is str:
        return _choice(info, parameter, str(given).lower() if isinstance(given, bool) else str(given))
    number = _number(given)
    if number is None or (parameter.kind is int and number != int(number)):
        wanted = "a whole number" if parameter.kind is int else "a number"
        raise ConfigError(f"{info.name}: {_label(parameter)} = {given!r} is not {wanted}")
    return int(number) if parameter.kind is int else number


def _number(given: str | int | float) -> float | None:
    if isinstance(given, bool):
        return None
    try:
        number = float(given)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _choice(info: SchemeInfo, parameter: Parameter, given: str) -> str:
    if parameter.choices and given not in parameter.choices:
        named = ", ".join(parameter.choices)
        raise ConfigError(f"{info.name}: {_label(parameter)} = {given!r} is not one of {named}")
    return given


def _label(parameter: Parameter) -> str:
    """`lambda (max_stragglers)`, or just the name when there is no other letter."""
    return parameter.name if parameter.letter == parameter.name else f"{parameter.letter} ({parameter.name})"


def _spellings(parameter: Parameter) -> str:
    return f"{parameter.letter} and {parameter.name}"


def _takes(info: SchemeInfo) -> str:
    if not info.parameters:
        return "it takes none"
    return "it takes " + ", ".join(_label(parameter) for parameter in info.parameters)


def _closest(name: str, names: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
