"""Reads a job file: TOML, overrides of the command line, and every mistake told in one line of the user's own words.

Knows no scheme, no data and no torch: it only yields a valid `JobConfig`. Read next: `config.py`.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, create_model

from gradmux.orchestrator.backends import Backend, find_backend, installed_backends, require_limits
from gradmux.orchestrator.config import DataConfig, JobConfig, ModelConfig, Section
from gradmux.orchestrator.errors import ConfigError


def load_job(path: Path, overrides: Sequence[str] = ()) -> JobConfig:
    """The job that the file `path` describes, with each `key=value` of `overrides` put over it.

    Raises: ConfigError with one line per mistake: file, key, what is wrong, what would fit.
    """
    tree = _read_toml(path)
    for override in overrides:
        _apply(tree, override)
    return parse_job(tree, source=path.name)


def parse_job(tree: Mapping[str, Any], source: str) -> JobConfig:
    """The job in `tree` (as tomllib reads it). `source` names it in errors.

    Raises: ConfigError.
    """
    if odd := list(_not_plain(tree, ())):
        raise ConfigError("\n".join(f"{source}: {line}" for line in odd))
    try:
        job = job_class().model_validate(tree)
    except ValidationError as error:
        lines = [*_unknown_backend(tree), *_explain(error)]
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines)) from None
    try:
        backend = _backend_of(job.cluster.backend)
        require_limits(job, backend)
        backend.validate(job)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{source}: {line}" for line in str(error).splitlines())) from None
    return job


def job_class() -> type[JobConfig]:
    """`JobConfig` with the sections of all installed backends: what a job file is read as."""
    sections = {name: kind for backend in installed_backends() for name, kind in backend.sections.items()}
    return _job_class(tuple(sorted(sections.items(), key=lambda item: item[0])))


@lru_cache
def _job_class(sections: tuple[tuple[str, type[Section]], ...]) -> type[JobConfig]:
    fields: dict[str, Any] = {
        name: (kind, Field(default=kind(), description=first_sentence(kind.__doc__ or ""))) for name, kind in sections
    }
    return create_model("JobConfig", __base__=JobConfig, **fields)


def _unknown_backend(tree: Mapping[str, Any]) -> list[str]:
    """Why the backend cannot be had, if so: its own sections are then unknown, too."""
    cluster = tree.get("cluster")
    name = cluster.get("backend") if isinstance(cluster, Mapping) else None
    if not isinstance(name, str):
        return []
    try:
        _backend_of(name)
    except ConfigError as error:
        return [str(error)]
    return []


def _backend_of(name: str) -> Backend:
    try:
        return find_backend(name)
    except ConfigError as error:
        raise ConfigError(f"cluster.backend: {error}") from None


def first_sentence(text: str) -> str:
    """Of a docstring, as the schema has descriptions: without a capital and a full stop."""
    sentence = text.strip().partition("\n")[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def parse_data(train: str, overrides: Sequence[str]) -> DataConfig:
    """A section [data] of these rows, with each `key=value` put over it: for a look at rows without a job.

    Raises: ConfigError.
    """
    tree: dict[str, Any] = {"train": train, "batch_size": 1}
    for override in overrides:
        _apply(tree, override)
    try:
        return DataConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(f"--set: {line}" for line in _explain(error))) from None


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job file, for editors and other programs."""
    schema = job_class().model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        for key in (section, *section["properties"].values()):
            if "description" in key:
                key["description"] = " ".join(key["description"].split())
    return schema


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin with a mark
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such job file") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name}: is not valid TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name}: is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


# Overrides


def _apply(tree: dict[str, Any], override: str) -> None:
    """Puts `a.b=value` into `tree`; the value is TOML, or a plain string when it is not. Tables are replaced whole."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: must be KEY=VALUE, for example --set training.steps=50")
    *parents, last = _path(key, override)
    place: Any = tree
    for depth, part in enumerate(parents, start=1):
        place = _enter(place, part, override, parents[:depth])
    if isinstance(place, list):
        place[_index(last, place, override, parents)] = _value(text.strip())
    else:
        place[last] = _value(text.strip())


def _path(key: str, override: str) -> list[str]:
    """The parts of a dotted TOML key."""
    try:
        parsed: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise ConfigError(
            f"--set {override}: {key!r} is not a dotted key; "
            "keys with a dot of their own need quotes: 'sweep.\"optimizer.lr\"=[0.1]'"
        ) from None
    parts = []
    while isinstance(parsed, dict):
        ((part, parsed),) = parsed.items()
        parts.append(part)
    return parts


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _enter(place: Any, part: str, override: str, at: Sequence[str]) -> Any:
    """The table or list under `part`, made when there is none yet."""
    place = place[_index(part, place, override, at[:-1])] if isinstance(place, list) else place.setdefault(part, {})
    if not isinstance(place, dict | list):
        raise ConfigError(f"--set {override}: {'.'.join(at)} is not a table, but {json.dumps(place, default=str)}")
    return place


def _index(key: str, items: Sequence[Any], override: str, at: Sequence[str]) -> int:
    if key.isdigit() and int(key) < len(items):
        return int(key)
    name = ".".join(at)
    raise ConfigError(f"--set {override}: {name} is a list of {len(items)}; use {name}.0 to {name}.{len(items) - 1}")


# Mistakes


def _explain(error: ValidationError) -> list[str]:
    """One line per mistake: the branches of a union are one mistake, and a list that lacks its bad items is none."""
    mistakes: dict[str, list[Any]] = {}
    for detail in error.errors(include_url=False):
        mistakes.setdefault(_location(detail["loc"]), []).append(detail)
    wrong_inside = {location.rpartition(".")[0] for location in mistakes}
    parents = {parent for location in wrong_inside for parent in accumulate(location.split("."), "{}.{}".format)}
    return [
        _line(location, details) for location, details in mistakes.items() if location not in parents or not location
    ]


def _location(loc: tuple[int | str, ...]) -> str:
    """`models.0.factory`; the branch of a union, which pydantic adds to the end, is left out."""
    known: list[str] = []
    for part in loc:
        if isinstance(part, str) and (part.startswith(("literal[", "constrained-", "tuple[")) or part in _BRANCHES):
            break
        known.append(str(part) if str(part).isprintable() else ascii(part))
    return ".".join(known)


def _not_plain(value: Any, loc: tuple[int | str, ...]) -> Iterator[str]:
    """One line per value that JSON does not have: a run keeps its job as JSON, and must get the same one back."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _not_plain(inner, (*loc, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_plain(inner, (*loc, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{_location(loc)}: must be a finite number (is {value})"
    elif not (value is None or isinstance(value, bool | int | float | str)):
        yield f"{_location(loc)}: must be a number, a string, true, false, a list or a table{_is(value)}"


_BRANCHES = frozenset({"int", "float", "str", "bool"})


def _line(location: str, details: list[Any]) -> str:
    key = f"{location}: " if location else ""
    if len(details) > 1 and all(detail["type"] in _KINDS for detail in details):
        kinds = " or ".join(dict.fromkeys(_KINDS[detail["type"]] for detail in details))
        return f"{key}must be {kinds}{_is(details[0]['input'])}"
    return f"{key}{_wrong(location, details[0])}"


def _wrong(location: str, detail: Any) -> str:
    """What is wrong with one value, and what would fit."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown_key(detail["loc"])
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"must be {context['expected']}{_is(detail['input'])}"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}{_is(detail['input'])}"
    if kind in _BOUNDS:
        word, bound = _BOUNDS[kind]
        return f"must be {word} {context[bound]:g}{_is(detail['input'])}"
    if kind == "string_pattern_mismatch":
        pattern = _PATTERNS["run" if location == "name" else location.rpartition(".")[2]]
        return f"{pattern}{_is(detail['input'])}"
    if kind == "too_short":
        return "must not be empty"
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}{_is(detail['input'])}"


_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_PATTERNS = {
    "run": "must consist of letters, digits and . _ - only, and begin with a letter or digit",
    "name": "must consist of letters, digits and . _ = + - only, and begin with a letter or digit",
    "factory": 'must be "module:function"',
}


def _is(value: Any) -> str:
    text = json.dumps(value, default=str)
    return f" (is {text if len(text) <= 60 else text[:57] + '...'})"


def _unknown_key(loc: Sequence[int | str]) -> str:
    """Says which keys the section has, the closest first."""
    *section, key = loc
    fields = _fields(section)
    close = get_close_matches(str(key), fields, n=1)
    if close:
        return f"is not a key of this section; did you mean {close[0]!r}?"
    return f"is not a key of this section; it has {', '.join(fields)}"


def _fields(section: Sequence[int | str]) -> list[str]:
    model: type[BaseModel] = job_class()
    for part in section:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ModelConfig
    return list(model.model_fields)
