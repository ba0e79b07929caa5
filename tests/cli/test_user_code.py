"""User functions are found beside the job file, refused in one line, and work in a process that has never seen them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cli.user_code import call, find_function, pack
from orchestrator.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A module that uses another one beside it."""
    stem = f"user_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{stem}_helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / f"{stem}.py").write_text(
        f"from {stem}_helper import twice\n"
        "SIZE = 3\n"
        "def size(factor=1):\n    return twice(SIZE) * factor\n"
        "def broken():\n    raise RuntimeError('no such size\\nat all')\n"
    )
    (tmp_path / f"{stem}_raises.py").write_text("1 / 0\n")
    (tmp_path / f"{stem}_imports.py").write_text("import surely_not_installed\n")
    return tmp_path


def stem(folder: Path) -> str:
    return f"user_{folder.name}".replace("-", "_")


def test_a_function_beside_the_job_file_is_found_and_the_path_left_as_it_was(folder: Path) -> None:
    before = list(sys.path)
    function = find_function(f"{stem(folder)}:size", folder, "factory")
    assert function(factor=2) == 12
    assert sys.path == before


def test_packed_code_works_where_its_modules_do_not_exist(folder: Path) -> None:
    packed = pack(find_function(f"{stem(folder)}:size", folder, "factory"), "factory")
    assert isinstance(packed, bytes)
    code = f"import pickle, sys; sys.exit(pickle.loads(bytes.fromhex('{packed.hex()}'))(factor=2))"
    assert subprocess.run([sys.executable, "-c", code], cwd="/", check=False).returncode == 12


def test_installed_code_travels_by_name() -> None:
    assert pack(pickle.dumps, "factory") == "_pickle:dumps"
    assert pack(find_function("json:dumps", None, "factory"), "factory") == "json:dumps"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:szie", "has no 'szie', did you mean 'size'?"),
        ("{}:SIZE", "is a int, not a function"),
        ("{}_none:size", "there is no module"),
        ("{}_raises:size", "raised ZeroDivisionError: division by zero"),
        ("{}_imports:size", "raised ModuleNotFoundError: No module named 'surely_not_installed'"),
    ],
)
def test_what_cannot_be_found_is_one_line(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_function(name.format(stem(folder)), folder, "models.0.factory")
    text = str(caught.value)
    assert text.startswith("models.0.factory = ")
    assert message in text
    assert "\n" not in text


def test_a_function_that_raises_is_one_line(folder: Path) -> None:
    function = find_function(f"{stem(folder)}:broken", folder, "factory")
    with pytest.raises(ConfigError, match=r"^model a: broken\(\) raised RuntimeError: no such size$"):
        call(function, {}, "model a")


def test_wrong_arguments_name_the_call(folder: Path) -> None:
    function = find_function(f"{stem(folder)}:size", folder, "factory")
    with pytest.raises(ConfigError, match=r"model a: size\(colour='red'\) raised TypeError"):
        call(function, {"colour": "red"}, "model a")


def test_what_cannot_be_pickled_is_one_line() -> None:
    handle = sys.stdout

    def writes() -> None:
        handle.write("x")

    with pytest.raises(ConfigError, match="cannot be sent to workers"):
        pack(writes, "factory")
