"""The docker command line, played by a small script: what it is asked, in which environment, with whose password."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gradmux.infra.aws.docker import DockerCli
from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.settings import Architecture
from tests.infra.aws.fakes import source

IMAGE, REGISTRY = "1.dkr.ecr.us-east-1.amazonaws.com/w:t", "1.dkr.ecr.us-east-1.amazonaws.com"
SCRIPT = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
    version) echo {arch} ;;
    image) echo {made} ;;
    context) echo unix:///engine.sock ;;
    build)
        eval folder=\\$$#
        cp "$folder/Dockerfile" {log}.Dockerfile
        echo "attestations: $BUILDX_NO_DEFAULT_ATTESTATIONS" >> {log} ;;
    --config) cp "$2/config.json" {log}.config; stat -c %a "$2/config.json" >> {log} ;;
esac
exit {status}
"""


class Played:
    """A docker that writes down what it is asked."""

    def __init__(self, folder: Path, arch: str = "amd64", made: str = "amd64", status: int = 0) -> None:
        self.log = folder / "asked"
        executable = folder / "docker"
        executable.write_text(SCRIPT.format(log=self.log, arch=arch, made=made, status=status))
        executable.chmod(0o755)
        self.cli = DockerCli(str(executable))

    @property
    def asked(self) -> list[str]:
        return self.log.read_text().splitlines()


def test_the_engines_architecture(tmp_path: Path) -> None:
    assert Played(tmp_path).cli.architecture() is Architecture.X86
    assert Played(tmp_path, arch="arm64").cli.architecture() is Architecture.ARM
    assert Played(tmp_path, status=1).cli.architecture() is None
    assert DockerCli(str(tmp_path / "nowhere")).architecture() is None


def test_a_build_names_platform_and_base_and_makes_no_image_index(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.cli.build(source(), IMAGE)
    assert played.asked[0].startswith(
        f"build --platform linux/amd64 --build-arg BASE=public.ecr.aws/lambda/python:3.12 --tag {IMAGE} /"
    )
    assert "attestations: 1" in played.asked
    assert Path(f"{played.log}.Dockerfile").read_bytes() == source().files["Dockerfile"]
    assert not Path(played.asked[0].rpartition(" ")[2]).exists()


def test_an_image_for_another_architecture_is_not_pushed(tmp_path: Path) -> None:
    with pytest.raises(AwsError, match=r"built .* for arm64, not for x86_64: use --builder cloud"):
        Played(tmp_path, made="arm64").cli.build(source(), IMAGE)


def test_a_push_keeps_the_password_to_itself(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.cli.push(IMAGE, REGISTRY, "s3cret")
    _, asked, mode = played.asked
    folder = asked.split()[1]
    assert asked == f"--config {folder} --host unix:///engine.sock push {IMAGE}"
    assert mode == "600"
    assert not os.path.exists(folder)
    assert set(json.loads(Path(f"{played.log}.config").read_text())["auths"]) == {REGISTRY}


def test_a_failure_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AwsError, match="docker build ended with status 3; its output says why"):
        Played(tmp_path, status=3).cli.build(source(), IMAGE)
    with pytest.raises(AwsError, match="docker push ended with status 3"):
        Played(tmp_path, status=3).cli.push(IMAGE, REGISTRY, "s3cret")
