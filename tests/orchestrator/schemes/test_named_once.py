"""Names of schemes stand in their own files: what else there is of them as literals is listed here, with the reason.

Whatever depends on a scheme asks its entry (`SchemeInfo`, `Facts`), or stands in the one table by name, keyed by the
entries' own names (`evaluate/families.py`). A literal elsewhere is a fact that stands twice.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gradmux.orchestrator.schemes.registry import OURS

PROJECT = Path(__file__).resolve().parents[3]
ROOMS = ("orchestrator", "cli", "infra", "lambda_worker")
LISTED: dict[str, tuple[int, str]] = {
    "orchestrator/api.py": (1, "the default that users read in the signature; numpy is not imported for it"),
    "orchestrator/demo/contest.py": (11, "jobs as users write them, and their labels"),
    "orchestrator/runs/replay.py": (3, "the policy `limits.backup` of a record's header, which is no scheme"),
    "infra/local/backend.py": (1, "says which modules to preload; a place asks configurations, not schemes"),
}
"""file -> literals in it, and why"""


def literals(source: str) -> int:
    """How many string literals of a file are names of our schemes."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return sum(isinstance(value, str) and value in OURS for value in constants)


def test_names_stand_where_they_are_listed() -> None:
    files = [path for room in ROOMS for path in (PROJECT / room).rglob("*.py")]
    outside = {path.relative_to(PROJECT).as_posix(): path for path in files}
    found = {
        name: count
        for name, path in sorted(outside.items())
        if not name.startswith("orchestrator/schemes/") and (count := literals(path.read_text(encoding="utf-8")))
    }
    assert len(files) > 100, "else nothing is looked at"
    assert found == {name: count for name, (count, _) in LISTED.items()}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('if batch.scheme == "m-sgc": pass', 1),
        ('TABLE = {"gc": 1, "sr-sgc": 2}', 2),
        ('"""About gc and m-sgc."""', 0),
        ("name = GC.name", 0),
        ('match scheme:\n    case "uncoded": pass', 1),
    ],
)
def test_what_counts_as_one(source: str, count: int) -> None:
    assert literals(source) == count
