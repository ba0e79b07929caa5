"""The image's source: the same files make the same tag and zip, and hold all that the worker imports, pinned."""

from __future__ import annotations

import ast
import io
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gradmux import lambda_worker
from gradmux.infra.aws.errors import SettingsError
from gradmux.infra.aws.image import BASES, image_source
from gradmux.infra.aws.settings import Architecture, DeploySettings
from tests.infra.aws.fakes import source

PROJECT = Path(__file__).resolve().parents[3]
X86, ARM = Architecture.X86, Architecture.ARM


def test_the_tag_says_what_the_image_was_made_from() -> None:
    one = image_source(X86, python="3.12")
    assert one.tag == image_source(X86, python="3.12").tag
    others = [
        image_source(ARM, python="3.12"),
        image_source(X86, python="3.13"),
        image_source(X86, "torchvision\n", python="3.12"),
    ]
    assert len({one.tag, *(other.tag for other in others)}) == 4
    assert source().tag != source(content=b"x = 2\n").tag
    assert re.fullmatch(r"x86_64-py3\.12-[0-9a-f]{16}", one.tag)


def test_the_zip_holds_the_files_and_is_always_the_same(tmp_path: Path) -> None:
    made = image_source(X86, "torchvision==0.1\n", python="3.12")
    assert made.zipped() == made.zipped()
    with zipfile.ZipFile(io.BytesIO(made.zipped())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == made.files
        assert all(stat.S_IMODE(entry.external_attr >> 16) == 0o644 for entry in archive.infolist())
    made.write_to(tmp_path)
    assert (tmp_path / "extra.txt").read_text() == "torchvision==0.1\n"
    assert (tmp_path / "gradmux/lambda_worker/handler.py").is_file()


def test_it_works_alone(tmp_path: Path) -> None:
    """Nothing of ours is imported but what is in it."""
    image_source(X86, python="3.12").write_to(tmp_path)
    code = (
        "import sys, gradmux.lambda_worker.handler as made\n"
        "assert made.__file__.startswith(sys.argv[1]), made.__file__\n"
        "others = ('gradmux.orchestrator', 'gradmux.infra', 'gradmux.cli')\n"
        "print(sorted(name for name in sys.modules if name.startswith(others)))"
    )
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_it_is_built_for_the_python_that_runs_now() -> None:
    assert image_source(X86).python == f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(SettingsError, match=r"no worker image for Python 3\.9"):
        image_source(X86, python="3.9")
    assert image_source(X86, python="3.12").base == "public.ecr.aws/lambda/python:3.12"
    assert set(BASES) == {"3.11", "3.12", "3.13", "3.14"}


def pins() -> dict[str, str]:
    text = image_source(X86).files["Dockerfile"].decode()
    return dict(re.findall(r"^(?:RUN .* | +)([a-z0-9]+)==(\S+)", text, re.MULTILINE))


def test_versions_are_those_that_were_tested_together() -> None:
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", (PROJECT / "constraints.txt").read_text(), re.MULTILINE))
    assert pins() == {name: tested[name] for name in pins()}
    assert image_source(X86).torch == tested["torch"]


def test_everything_that_the_worker_imports_is_installed_in_it() -> None:
    imported = set()
    for file in Path(lambda_worker.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    foreign = imported - sys.stdlib_module_names - {"gradmux"}
    comes_along = {"botocore"}  # with boto3
    assert foreign - comes_along <= set(pins())
    assert {"awslambdaric", "cloudpickle"} <= set(pins())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory_mb": 256}, "memory must be from 512 to 10,240 MB, got 256"),
        ({"memory_mb": 10_241}, "memory"),
        ({"timeout_s": 901}, "timeout must be from 1 to 900 s, got 901"),
        ({"tmp_mb": 511}, "tmp must be from 512"),
        ({"log_days": 2}, "log-days must be one of 1, 3, 5"),
        ({"keep_days": -1}, "keep-days"),
        ({"reserved": 0}, "0 would forbid every call"),
        ({"role": "arn:aws:iam::1:role/r"}, "give --bucket"),
    ],
)
def test_settings_are_checked_against_awss_limits(fields: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        DeploySettings(**fields)  # type: ignore[arg-type]


def test_the_cache_leaves_room_in_tmp() -> None:
    assert DeploySettings().cache_bytes == 384 * 2**20
    assert DeploySettings(tmp_mb=10_240).cache_bytes == 10_112 * 2**20
