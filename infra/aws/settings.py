"""What a deployment is to be: size and limits of the function, how its image is built, what the user brings.

Pure: checked once against AWS's own limits, then only read. Read next: `image.py`, `plan.py`.
"""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum

from gradmux.infra.aws.errors import SettingsError

LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365)
SMALLEST_TMP_MB = 512
TMP_LEFT_MB = 128
"""What the data cache leaves of /tmp to the user's code."""
LEAST_MEMORY_MB = 512
"""torch and the worker take half of it; with still less processor their import may outlast the 10 s of INIT."""


LONGEST_PARAMETER = 4096
"""characters of a stack's parameter"""
TORCH_VERSION = "2.13.0"
"""of the image: the Dockerfile's, which a test holds it to"""
TORCH_LINE = re.compile(
    r"(?i)^torch\s*(?:\[[^\]]*\])?\s*(?:@\s*(?P<url>\S+)|(?P<specifiers>[=<>!~][^;]*))?\s*(?:;.*)?$"
)


class Architecture(StrEnum):
    """Lambda's names."""

    X86 = "x86_64"
    ARM = "arm64"

    @property
    def platform(self) -> str:
        """Docker's name."""
        return "linux/amd64" if self is Architecture.X86 else "linux/arm64"


class Builder(StrEnum):
    """Where the image is built."""

    AUTO = "auto"
    """docker, where an engine of the right architecture answers; else in the cloud"""
    DOCKER = "docker"
    CLOUD = "cloud"
    """by CodeBuild"""


@dataclass(frozen=True, slots=True)
class DeploySettings:
    """One deployment, as the user wants it."""

    name: str = "gradmux"
    architecture: Architecture = Architecture.X86
    memory_mb: int = 2048
    """also decides the share of a processor: one for each 1,769 MB"""
    timeout_s: int = 60
    tmp_mb: int = 512
    """/tmp"""
    reserved: int | None = None
    """concurrent invocations for this function alone, and no more; None: the account's shared limit"""
    log_days: int = 14
    keep_days: int = 90
    """days after which a run's objects are deleted; 0 for never"""
    builder: Builder = Builder.AUTO
    requirements: str = ""
    """what goes into the image beside torch: lines of a requirements file"""
    bucket: str | None = None
    """an existing one; None: a bucket of the deployment's own"""
    role: str | None = None
    """ARN of an existing role; then nothing is made but the function and what it runs, and no stack"""
    image: str | None = None
    """URI of a finished image in the account's own registry"""
    kms_key: str = ""
    """ARN of the key that encrypts the bucket; empty: S3's own, which need no rights"""

    def __post_init__(self) -> None:
        _within("memory", self.memory_mb, LEAST_MEMORY_MB, 10_240, "MB")
        _within("timeout", self.timeout_s, 1, 900, "s")
        _within("tmp", self.tmp_mb, SMALLEST_TMP_MB, 10_240, "MB")
        _within("keep-days", self.keep_days, 0, 36_500, "days")
        if self.log_days not in LOG_DAYS:
            raise SettingsError(f"log-days must be one of {', '.join(map(str, LOG_DAYS))}, got {self.log_days}")
        if len(packed(self.requirements)) > LONGEST_PARAMETER:
            raise SettingsError("requirements are too long for CloudFormation to keep: list packages without hashes")
        if (wrong := other_torch(self.requirements)) is not None:
            raise SettingsError(
                f"requirements: {wrong!r}: workers need the torch of the image, {TORCH_VERSION} for CPUs: leave it out"
            )
        if self.kms_key and ":key/" not in self.kms_key:
            raise SettingsError(f"kms-key {self.kms_key!r}: give the key's ARN, arn:aws:kms:REGION:ACCOUNT:key/ID")
        if self.reserved is not None and self.reserved < 1:
            raise SettingsError(f"reserved must be 1 or more, got {self.reserved}: 0 would forbid every call")
        if self.role is not None and self.bucket is None:
            raise SettingsError("a role of your own needs a bucket of your own as well: give --bucket")
        if self.role is not None and self.image is None and self.builder is Builder.CLOUD:
            raise SettingsError("building in the cloud needs a stack: leave --role out, use docker, or give --image")

    @property
    def cache_bytes(self) -> int:
        """How much of /tmp the worker's data cache may fill."""
        return (self.tmp_mb - TMP_LEFT_MB) * 2**20


def packed(requirements: str) -> str:
    """Short enough for a parameter, as a rule; empty for none."""
    return base64.b64encode(zlib.compress(requirements.encode(), 9)).decode() if requirements else ""


def unpacked(text: str) -> str:
    """The requirements that `packed` made it from."""
    return zlib.decompress(base64.b64decode(text)).decode() if text else ""


def other_torch(requirements: str) -> str | None:
    """The line that asks for a torch that is not the image's; None where there is none."""
    for line in requirements.splitlines():
        found = TORCH_LINE.match(line.partition("#")[0].strip())
        if found and not _admits(found["specifiers"] or "", found["url"]):
            return line.strip()
    return None


def _admits(specifiers: str, url: str | None) -> bool:
    """Could the image's torch be meant? Only what is plainly another one is refused here; pip refuses the rest."""
    exact = [each.strip()[2:].strip() for each in specifiers.split(",") if each.strip().startswith("==")]
    return url is None and all(version.split("+")[0].rstrip(".*") in TORCH_VERSION for version in exact)


def _within(name: str, value: int, least: int, most: int, unit: str) -> None:
    if not least <= value <= most:
        raise SettingsError(f"{name} must be from {least} to {most:,} {unit}, got {value:,}")
