"""Doors and dockers for tests: one that records what goes through to moto, one that answers from a script."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.image import ImageSource
from gradmux.infra.aws.names import Account, Names
from gradmux.infra.aws.plan import Plan
from gradmux.infra.aws.settings import Architecture

GOLDEN = Path(__file__).parent / "golden"
CONTENT = re.compile(r"<\d+ bytes, sha256 \w+>")
ACCOUNT = Account("123456789012", "us-east-1")
NAMES = Names("gradmux", ACCOUNT)
MANIFEST = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    "config": {"digest": "sha256:0"},
    "layers": [],
}


def source(architecture: Architecture = Architecture.X86, content: bytes = b"x = 1\n") -> ImageSource:
    """A small image, whose tag does not depend on the code of today."""
    files = {"Dockerfile": b"RUN pip install torch==2.0\n", "gradmux/lambda_worker/__init__.py": content}
    return ImageSource(MappingProxyType(files), architecture, "3.12")


def check_golden(name: str, plan: Plan) -> None:
    """Compares a plan with golden/NAME.json; UPDATE_GOLDEN=1 writes it anew."""
    text = CONTENT.sub("<content>", json.dumps(plan.to_json(), indent=2)) + "\n"
    file = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert file.read_text() == text


class RecordingDoor:
    """Everything that goes through another door, in order."""

    def __init__(self, inner: Door) -> None:
        self.inner = inner
        self.passed: list[tuple[str, Mapping[str, Any]]] = []

    @property
    def region(self) -> str:
        return self.inner.region

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.passed.append((f"{service}.{operation}", arguments))
        return self.inner.call(service, operation, arguments)

    def wait(self, service: str, waiter: str, arguments: Mapping[str, Any], limit_s: float) -> None:
        self.passed.append((f"wait {service}.{waiter}", arguments))
        self.inner.wait(service, waiter, arguments, limit_s)

    def endpoint(self, service: str) -> str:
        return self.inner.endpoint(service)


Answer = dict[str, Any] | AwsError


class ScriptedDoor:
    """Answers calls and waits by name; several answers of one name in turn, the last of them for ever."""

    def __init__(self, script: Mapping[str, Answer | list[Answer]], region: str = "us-east-1") -> None:
        self._script = {name: list(told) if isinstance(told, list) else [told] for name, told in script.items()}
        self.region = region
        self.passed: list[tuple[str, Mapping[str, Any]]] = []

    @property
    def titles(self) -> list[str]:
        return [title for title, _ in self.passed]

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._answer(f"{service}.{operation}", arguments)

    def wait(self, service: str, waiter: str, arguments: Mapping[str, Any], limit_s: float) -> None:
        self._answer(f"wait {service}.{waiter}", arguments)

    def endpoint(self, service: str) -> str:
        return f"https://{service}.{self.region}.amazonaws.com"

    def _answer(self, title: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.passed.append((title, arguments))
        if title not in self._script:
            raise AssertionError(f"nobody expected {title}")
        answers = self._script[title]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, AwsError):
            raise answer
        return answer


class FakeDocker:
    """An engine that builds at once; a push puts a manifest into the registry behind the door."""

    def __init__(self, door: Door | None = None, architecture: Architecture | None = Architecture.X86) -> None:
        self._door, self._architecture = door, architecture
        self.built: list[str] = []
        self.pushed: list[tuple[str, str]] = []
        """image, password"""

    def architecture(self) -> Architecture | None:
        return self._architecture

    def build(self, source: ImageSource, image: str) -> None:
        self.built.append(image)

    def push(self, image: str, registry: str, password: str) -> None:
        self.pushed.append((image, password))
        if self._door is not None:
            put_image(self._door, image)


def put_image(door: Door, image: str) -> None:
    """The image as if it had been pushed."""
    repository, _, tag = image.partition("/")[2].partition(":")
    arguments = {"repositoryName": repository, "imageManifest": json.dumps(MANIFEST), "imageTag": tag}
    door.call("ecr", "put_image", arguments)
