"""What the documentation shows is true: its job validates, its commands exist, its help pages are current."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from gradmux.cli.main import gradmux
from gradmux.cli.options import FAULTS_HELP, HELP, Settings
from gradmux.infra.local import FaultKind
from gradmux.orchestrator.backends import Backend
from gradmux.orchestrator.job_file import job_class, job_schema, parse_job
from gradmux.orchestrator.training.data import load_dataset
from scripts import backend_docs, job_docs

PROJECT = Path(__file__).resolve().parent.parent
README = PROJECT / "README.md"


def blocks(language: str, page: Path = README) -> list[str]:
    """The fenced blocks of one language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def shown_commands() -> list[str]:
    """Every `gradmux ...` line of the README's shell blocks."""
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("gradmux ")]


def test_the_job_file_of_the_readme_is_valid() -> None:
    (text,) = blocks("toml")
    job = parse_job(tomllib.loads(text), source="README.md")
    assert len(job.expanded_models()) == 3


@pytest.mark.parametrize("code", blocks("python"))
def test_python_of_the_readme_compiles(code: str) -> None:
    ast.parse(code)


@pytest.mark.parametrize("line", shown_commands())
def test_commands_of_the_readme_parse(line: str) -> None:
    words = shlex.split(line)[1:]
    context = click.Context(gradmux, obj=Settings(), **HELP)
    _, command, rest = gradmux.resolve_command(context, words)
    assert command is not None
    command.make_context(words[0], rest, parent=context)


def test_every_command_of_the_readme_table_exists() -> None:
    rows = re.findall(r"^\| `gradmux ([a-z-]+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    context = click.Context(gradmux)
    assert rows == gradmux.list_commands(context)


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    missing = [link for link in links if not link.startswith("http") and not (README.parent / link).exists()]
    assert missing == []


def test_files_that_the_readme_names_exist() -> None:
    named = re.findall(r"`((?:orchestrator|lambda_worker|infra|cli)/[\w/.]*)`", README.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (README.parent / name).exists()] == []


def test_the_help_pages_are_current() -> None:
    """In a process of its own: click keeps a command's help option from its first use, alone or under `gradmux`."""
    check = subprocess.run(
        [sys.executable, "-m", "scripts.cli_docs", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_page_of_the_job_file_is_current() -> None:
    assert job_docs.PAGE.read_text(encoding="utf-8") == job_docs.render(), "run `make docs`"


def test_every_key_of_a_job_file_is_described() -> None:
    schema = job_schema()
    sections = {"": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, each in sections.items()
        for key, described in each["properties"].items()
        if not described.get("description")
    ]
    assert silent == []
    assert set(schema["properties"]) == set(job_class().model_fields)
    assert {name for _, name in job_docs.SECTIONS} == set(sections), "each has its table"


def test_the_job_files_of_the_page_are_valid() -> None:
    for text in blocks("toml", job_docs.PAGE):
        parse_job(tomllib.loads(text), source="job-file.md")


@pytest.mark.parametrize(("code", "written"), [*zip(blocks("python", job_docs.PAGE), ("npz", "parquet"), strict=True)])
def test_rows_are_converted_as_the_page_says(
    code: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a,b,label\n0.5,1,2\n-1.5,3,0\n")
    exec(compile(code, "job-file.md", "exec"), {})
    rows = load_dataset(str(tmp_path / f"rows.{written}"))
    assert rows.x.tolist() == [[0.5, 1.0], [-1.5, 3.0]]
    assert (rows.y.tolist(), rows.y.dtype.name) == ([2, 0], "int64")


def test_every_kind_of_fault_is_told() -> None:
    troubles = (README.parent / "docs" / "runs.md").read_text(encoding="utf-8")
    assert [kind.value for kind in FaultKind if f"`{kind.value}`" not in troubles] == []
    assert [kind.value for kind in FaultKind if kind.value not in re.findall(r"\w+", FAULTS_HELP)] == []


def test_the_page_about_backends_shows_the_tested_one() -> None:
    assert backend_docs.PAGE.read_text(encoding="utf-8") == backend_docs.render(), "run `make docs`"


def test_every_member_of_a_backend_is_in_the_page() -> None:
    page = backend_docs.PAGE.read_text(encoding="utf-8").partition("```python")[0]
    members = [name for name in vars(Backend) if not name.startswith("_")]
    assert [name for name in members if f"`{name}`" not in page] == []


def test_the_command_line_only_parses_and_prints() -> None:
    """No more than this, and neither torch nor AWS's clients by name (an import contract holds that, too)."""
    files = sorted((PROJECT / "cli").rglob("*.py"))
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < 2600
    heavy = re.compile(r"^\s*(?:import|from) (?:torch|boto3|botocore|obstore)\b", re.MULTILINE)
    assert [path.name for path in files if heavy.search(path.read_text(encoding="utf-8"))] == []


def test_nothing_asks_which_backend_a_job_names() -> None:
    """What differs between backends, a backend says."""
    files = [path for room in ("orchestrator", "cli") for path in sorted((PROJECT / room).rglob("*.py"))]
    asks = re.compile(r"""backend\s*(?:==|!=|in)\s*[("']""")
    assert [path.name for path in files if asks.search(path.read_text(encoding="utf-8"))] == []
