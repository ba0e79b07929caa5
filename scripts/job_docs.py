"""Writes docs/job-file.md: `job_file_head.md`, then tables from the job file's own schema: `make docs`.

A test holds the file to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gradmux.orchestrator.backends import installed_backends
from gradmux.orchestrator.job_file import job_schema

PAGE = Path(__file__).resolve().parent.parent / "docs" / "job-file.md"
SECTIONS = (
    ("the top of the file", ""),
    ("[cluster]", "ClusterConfig"),
    ("[scheme]", "SchemeConfig"),
    ("[data]", "DataConfig"),
    ("a column in data.pad", "PadConfig"),
    ("[training]", "TrainingConfig"),
    ("[[models]]", "ModelConfig"),
    ("optimizer of a model", "OptimizerConfig"),
    ("groups of an optimizer", "GroupConfig"),
    ("scheduler of a model", "NamedClass"),
    *((f"[{name}]", kind.__name__) for each in installed_backends() for name, kind in each.sections.items()),
)
NOTES = {
    "[scheme]": "Every other key is a parameter of the scheme, by letter or by long name: [schemes.md](schemes.md).\n",
    "[[models]]": "One such table for each model. `[sweep]` makes more of each, one for every combination:\n"
    '`"optimizer.lr" = [1e-2, 1e-3]`. A key is `args.NAME`, `optimizer.NAME`, `scheduler.NAME` or `factory`; the new\n'
    "models are called `NAME-lr=0.01` and so on.\n",
}
UNITS = {
    "workers": "workers",
    "concurrency": "invocations",
    "attempts": "invocations",
    "in_flight_cap": "share of n",
    "mu": "times the fastest",
    "max_load": "times 1/n",
    "batch_size": "rows",
    "steps": "steps",
    "checkpoint_every": "steps",
    "time_scale": "times",
    "faults": "shares of invocations",
}
SUFFIXES = {"_s": "seconds", "_mb": "MB", "_usd": "US dollars"}
HEAD = Path(__file__).with_name("job_file_head.md")
"""Written by hand."""


def render() -> str:
    """The whole page."""
    schema = job_schema()
    return HEAD.read_text(encoding="utf-8") + "".join(
        _section(title, schema["$defs"][name] if name else schema) for title, name in SECTIONS
    )


def _section(title: str, described: Mapping[str, Any]) -> str:
    required = described.get("required", ())
    keys = sorted(described["properties"].items(), key=lambda each: each[0] != "name")
    rows = [_row(name, key, name in required) for name, key in keys]
    table = _table(("key", "type", "unit", "default", "meaning"), rows)
    shown = f"`{title}`" if title.startswith("[") else title
    note = f"{NOTES[title]}\n" if title in NOTES else ""
    return f"\n### {shown}\n\n{note}{table}"


def _row(name: str, key: Mapping[str, Any], required: bool) -> tuple[str, ...]:
    kind = _kind(key)
    unit = UNITS.get(name) or next((unit for suffix, unit in SUFFIXES.items() if name.endswith(suffix)), "")
    return f"`{name}`", kind, unit, "must be given" if required else _default(key), key["description"]


def _kind(key: Mapping[str, Any]) -> str:
    """The type in words, with its bounds."""
    return " or ".join(dict.fromkeys(_kinds(key)))


def _kinds(key: Mapping[str, Any]) -> Iterator[str]:
    if "anyOf" in key:
        yield from (kind for each in key["anyOf"] if each.get("type") != "null" for kind in _kinds(each))
    elif "const" in key or "enum" in key:
        yield from (f"`{json.dumps(each)}`" for each in key.get("enum", [key.get("const")]))
    elif "$ref" in key:
        yield "table"
    elif key["type"] == "array":
        yield "list of tables" if "$ref" in key["items"] else "list"
    else:
        words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
        yield words.get(key["type"], "table") + _bounds(key)


def _bounds(key: Mapping[str, Any]) -> str:
    signs = (("exclusiveMinimum", ">"), ("minimum", ">="), ("maximum", "<="))
    bounds = [f"{sign} {key[name]:g}" for name, sign in signs if name in key]
    return f" {', '.join(bounds)}" if bounds else ""


def _default(key: Mapping[str, Any]) -> str:
    default = key.get("default")
    if default is None:
        return "none"
    if isinstance(default, dict):
        return f"`{default['name']}`" if set(default) == {"name"} else "its own"
    return f"`{json.dumps(default)}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|").strip() for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE}")
