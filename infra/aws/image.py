"""What the worker's image is made of: Dockerfile, lambda_worker, the user's requirements; and the tag that says which.

The same files always give the same tag and the same zip, so that an image is built once. Builds nothing itself.
Read next: `plan.py`; `docker.py` and `buildspec.yaml` do the building.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gradmux import lambda_worker
from gradmux.infra.aws.errors import SettingsError
from gradmux.infra.aws.settings import Architecture

HERE = Path(__file__).parent
BASES = {
    # AWS's own 3.11 image has a C library too old for torch, hence Debian's.
    "3.11": "public.ecr.aws/docker/library/python:3.11-slim-bookworm",
    "3.12": "public.ecr.aws/lambda/python:3.12",
    "3.13": "public.ecr.aws/lambda/python:3.13",
    "3.14": "public.ecr.aws/lambda/python:3.14",
}
"""Python -> image to begin with."""
TORCH = re.compile(r"\btorch==(\S+)")
ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can say: times would change its bytes."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Everything that an image follows from."""

    files: Mapping[str, bytes]
    """path in the build context -> content"""
    architecture: Architecture
    python: str
    """such as 3.12"""

    @property
    def base(self) -> str:
        """The image to begin with."""
        return BASES[self.python]

    @property
    def torch(self) -> str:
        """Its version of torch."""
        found = TORCH.search(self.files["Dockerfile"].decode())
        assert found is not None, "the Dockerfile pins torch"
        return found[1]

    @property
    def tag(self) -> str:
        """Architecture, Python and a hash of everything."""
        digest = hashlib.sha256(f"{self.architecture} {self.base}".encode())
        for path, content in sorted(self.files.items()):
            digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
        return f"{self.architecture}-py{self.python}-{digest.hexdigest()[:16]}"

    def zipped(self) -> bytes:
        """The build context as CodeBuild reads it."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(self.files.items()):
                entry = zipfile.ZipInfo(path, ZIP_TIME)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        return buffer.getvalue()

    def write_to(self, folder: Path) -> None:
        """The build context as docker reads it."""
        for path, content in self.files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def image_source(architecture: Architecture, requirements: str = "", python: str | None = None) -> ImageSource:
    """The source of the worker's image, with this machine's Python unless another is named. Raises SettingsError."""
    python = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    if python not in BASES:
        raise SettingsError(f"there is no worker image for Python {python}: use one of {', '.join(BASES)}")
    files = {
        "Dockerfile": (HERE / "Dockerfile").read_bytes(),
        "buildspec.yml": (HERE / "buildspec.yaml").read_bytes(),
        "extra.txt": requirements.encode(),
    }
    package = Path(lambda_worker.__file__).parent
    files["gradmux/__init__.py"] = (package.parent / "__init__.py").read_bytes()
    for file in sorted(package.rglob("*.py")):
        files[f"gradmux/lambda_worker/{file.relative_to(package).as_posix()}"] = file.read_bytes()
    return ImageSource(MappingProxyType(files), architecture, python)
