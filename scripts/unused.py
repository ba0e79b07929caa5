"""What of the product nothing in the product uses: `python -m scripts.unused`.

The rule. A module counts as used when a module of the product other than itself imports it, when `pyproject.toml` or a
command line in the product names it (`-m gradmux.x.y`), or when it is a command. A function, class, method or field
counts as used when its name stands in the product somewhere else than in its own definition: as a name, an attribute,
an import, a keyword argument, or within a text that is not a docstring (entry points, dispatch by name). So a name that
two things share hides both: what is printed is unused by the product, what is not printed may be as well. Left out:
names with two leading underscores, what a decorator hands on (commands, validators), methods of classes with a base
from elsewhere (servers, protocols of asyncio), contracts for plug-ins, and what `STAYS` gives a reason for.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("orchestrator", "lambda_worker", "infra", "cli")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PUBLIC = ("ports.py", "backends.py", "schemes/scheme.py", "schemes/asks.py")
"""contracts: what they declare is for others"""

OURS_ALONE = {"property", "classmethod", "staticmethod", "cache", "lru_cache", "cached_property", "contextmanager"}
"""decorators that hand a function to nothing else"""
STAYS = {
    "api": "what `gradmux/__init__.py` resolves on first use",
    "samples": "handlers that emulated workers of tests import by name, also in processes without the tests' folder",
    "importing_from": "the library's way to a job file's folder, for scripts",
    "same_as": "equality of profiles, for scripts that convert them",
    "results_held": "what memory a run takes, for those who watch one",
    "traffic_bytes": "the same for the network; `cloud_aggregation` reports it",
    "unmarshal_request": "AWS's runtime calls it",
    "marshal_response": "AWS's runtime calls it",
    "data_received": "asyncio calls it",
    "connection_lost": "asyncio calls it",
    "eof_received": "asyncio calls it",
    "get_buffer": "asyncio calls it",
    "buffer_updated": "asyncio calls it",
    "sd_s": "a column of `gradmux tune --json`",
    "workers_told": "a field of `gradmux cancel --json`",
    "wait_next_invocation": "AWS's runtime calls it",
    "post_invocation_result": "AWS's runtime calls it",
    "post_invocation_error": "AWS's runtime calls it",
    "post_init_error": "AWS's runtime calls it",
}


def main() -> None:
    """Prints modules, then definitions, with file and line."""
    trees = {path: ast.parse(path.read_text()) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
    words: Counter[str] = Counter()
    for tree in trees.values():
        words.update(_uses(tree))
    words.update(WORD.findall((ROOT / "pyproject.toml").read_text()))
    words.update(WORD.findall((ROOT / "gradmux" / "__init__.py").read_text()))
    for path in _unused_modules(trees):
        print(f"{path.relative_to(ROOT)}: module")
    for path, tree in trees.items():
        if not path.as_posix().endswith(PUBLIC):
            for name, line in _definitions(tree):
                if not words[name]:
                    print(f"{path.relative_to(ROOT)}:{line}: {name}")


def _unused_modules(trees: dict[Path, ast.Module]) -> Iterator[Path]:
    texts = {path: path.read_text() for path in trees}
    project = (ROOT / "pyproject.toml").read_text()
    for path in trees:
        dotted = "gradmux." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        package, _, module = dotted.rpartition(".")
        patterns = (re.escape(dotted) + r"\b", rf"from {re.escape(package)} import [^\n]*\b{module}\b")
        named = any(re.search(pattern, text) for other, text in texts.items() if other != path for pattern in patterns)
        known = path.parent.name == "commands" or path.stem in ("__main__", "__init__", *STAYS)
        if not (named or dotted in project or known):
            yield path


def _definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    foreign = {
        id(item)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Attribute) or _foreign(base) for base in node.bases)
        for item in node.body
    }
    for node in ast.walk(tree):
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named and _counts(node.name) and id(node) not in foreign and _is_ours_alone(node):
            yield node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and _counts(item.target.id):
                    yield item.target.id, item.lineno


def _foreign(base: ast.expr) -> bool:
    name = base.id if isinstance(base, ast.Name) else ""
    return name.endswith(("Handler", "Server", "Protocol", "Command", "Group")) and name != "Protocol"


def _is_ours_alone(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    given = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    names = [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in given]
    return isinstance(node, ast.ClassDef) or set(names) <= OURS_ALONE


def _counts(name: str) -> bool:
    return not name.startswith("__") and name not in ("main", *STAYS)


def _uses(tree: ast.Module) -> Iterator[str]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield from WORD.findall(name)
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from WORD.findall(text)
            case ast.MatchClass(kwd_attrs=names):
                yield from names


if __name__ == "__main__":
    sys.exit(main())
