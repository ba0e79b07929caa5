"""The worker's image by this machine's docker: is there an engine, build, push.

Output of docker goes to our standard error. Read `building.py` for when it is used.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gradmux.infra.aws.errors import AwsError
from gradmux.infra.aws.image import ImageSource
from gradmux.infra.aws.settings import Architecture

ANSWER_S = 20.0
ARCHITECTURES = {
    "amd64": Architecture.X86,
    "x86_64": Architecture.X86,
    "arm64": Architecture.ARM,
    "aarch64": Architecture.ARM,
}


class Docker(Protocol):
    """What builds images."""

    def architecture(self) -> Architecture | None:
        """Of the engine; None when none answers."""
        ...

    def build(self, source: ImageSource, image: str) -> None:
        """Raises AwsError when it cannot be built, or came out for another architecture."""
        ...

    def push(self, image: str, registry: str, password: str) -> None:
        """Raises AwsError."""
        ...


class DockerCli:
    """The `docker` command."""

    def __init__(self, executable: str = "docker") -> None:
        self._executable = executable

    def architecture(self) -> Architecture | None:
        return ARCHITECTURES.get(self._answer("version", "--format", "{{.Server.Arch}}"))

    def build(self, source: ImageSource, image: str) -> None:
        platform = source.architecture.platform
        with tempfile.TemporaryDirectory(prefix="gradmux-image-") as folder:
            source.write_to(Path(folder))
            self._run(
                ["build", "--platform", platform, "--build-arg", f"BASE={source.base}", "--tag", image, folder],
                # With attestations docker pushes an image index, which Lambda does not take.
                variables={"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
            )
        made = ARCHITECTURES.get(self._answer("image", "inspect", "--format", "{{.Architecture}}", image))
        if made is not source.architecture:
            raise AwsError(f"docker built {image} for {made}, not for {source.architecture}: use --builder cloud")

    def push(self, image: str, registry: str, password: str) -> None:
        """The password lies in a file that only we can read, for as long as the push takes; docker asks for a file."""
        host = self._answer("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
        with tempfile.TemporaryDirectory(prefix="gradmux-docker-") as folder:
            token = base64.b64encode(f"AWS:{password}".encode()).decode()
            file = os.open(Path(folder) / "config.json", os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(file, "w") as config:
                json.dump({"auths": {registry: {"auth": token}}}, config)
            # Another configuration folder hides the user's context, and with it the engine's address.
            self._run(["--config", folder, *(["--host", host] if host else []), "push", image])

    def _answer(self, *arguments: str) -> str:
        """What docker prints; empty when it is not there, or fails."""
        try:
            ran = subprocess.run(
                [self._executable, *arguments], capture_output=True, text=True, timeout=ANSWER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return ran.stdout.strip() if ran.returncode == 0 else ""

    def _run(self, arguments: Sequence[str], variables: dict[str, str] | None = None) -> None:
        command = [self._executable, *arguments]
        environment = {**os.environ, **(variables or {})}
        try:
            status = subprocess.run(command, stdout=sys.stderr.fileno(), env=environment, check=False).returncode
        except OSError as error:
            raise AwsError(f"{self._executable}: {error}") from error
        if status != 0:
            what = next(word for word in arguments if word in ("build", "push"))
            raise AwsError(f"docker {what} ended with status {status}; its output says why")
