"""A plan: the steps that lead from what exists to what is wanted, as data that can be shown before it is done.

Pure; knows no AWS but by the names of its calls. `stack_plan.py`, `direct_plan.py` and `destroy_plan.py` make plans,
`execute.py` carries them out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Call:
    """One call of AWS's API."""

    service: str
    operation: str
    """boto3's name"""
    arguments: Mapping[str, Any]
    why: str
    settled: tuple[str, ...] = ()
    """error codes, or parts of messages, that say: it is so already"""

    @property
    def title(self) -> str:
        return f"{self.service}.{self.operation}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting until AWS has done what it was asked for."""

    service: str
    waiter: str
    """boto3's name"""
    arguments: Mapping[str, Any]
    why: str
    limit_s: float = 1800.0

    @property
    def title(self) -> str:
        return f"wait {self.service}.{self.waiter}"


@dataclass(frozen=True, slots=True)
class DockerBuild:
    """The image, built by this machine's docker from the plan's source."""

    image: str
    base: str
    platform: str
    """linux/amd64 or linux/arm64"""
    why: str

    @property
    def title(self) -> str:
        return "docker build"


@dataclass(frozen=True, slots=True)
class DockerPush:
    """The image, brought to the registry; the password for it lives twelve hours and is never written down."""

    image: str
    registry: str
    why: str

    @property
    def title(self) -> str:
        return "docker push"


@dataclass(frozen=True, slots=True)
class CloudBuild:
    """The image, built by CodeBuild; ends when the build does."""

    arguments: Mapping[str, Any]
    """of codebuild.start_build"""
    why: str
    limit_s: float = 3600.0

    @property
    def title(self) -> str:
        return "codebuild.start_build"


@dataclass(frozen=True, slots=True)
class EmptyBucket:
    """Every object of a bucket deleted, every version of it and every unfinished upload."""

    bucket: str
    why: str

    @property
    def title(self) -> str:
        return "s3: delete all objects"


Step: TypeAlias = Call | Wait | DockerBuild | DockerPush | CloudBuild | EmptyBucket


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that is not as before."""

    name: str
    """of its option, without dashes"""
    old: str
    new: str
    loss: str = ""
    """what is lost by it, which somebody has to want; empty: nothing"""

    def told(self) -> str:
        """In one line."""
        return f"{self.name}: {self.old} -> {self.new}" + (f" ({self.loss})" if self.loss else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in their order; none when everything is as wanted."""

    steps: tuple[Step, ...]
    leaves: tuple[str, ...] = ()
    """what stays, and how to be rid of it: one line each"""
    changes: tuple[Change, ...] = ()
    """of the settings, where something was deployed before"""
    notes: tuple[str, ...] = ()
    """what people should know: one line each"""

    @property
    def losses(self) -> tuple[Change, ...]:
        """Changes that nobody should make by mistake."""
        return tuple(change for change in self.changes if change.loss)

    def to_json(self) -> dict[str, Any]:
        """For people and golden files: contents and templates by size and hash."""
        told: dict[str, Any] = {"steps": [_step_json(step) for step in self.steps], "leaves": list(self.leaves)}
        if self.changes:
            told["changes"] = [asdict(change) for change in self.changes]
        if self.notes:
            told["notes"] = list(self.notes)
        return told


def _step_json(step: Step) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step.title, "why": step.why}
    match step:
        case Call() | Wait() | CloudBuild():
            told["arguments"] = shown(step.arguments)
        case DockerBuild():
            told |= {"image": step.image, "base": step.base, "platform": step.platform}
        case DockerPush():
            told["image"] = step.image
        case EmptyBucket():
            told["bucket"] = step.bucket
    return told


def shown(value: Any) -> Any:
    """The value as JSON, long texts and bytes as their size and the head of their SHA-256."""
    if isinstance(value, Mapping):
        return {name: shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, bytes) or (isinstance(value, str) and len(value) > SHOWN_BYTES):
        content = value if isinstance(value, bytes) else value.encode()
        return f"<{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()[:12]}>"
    return value


def about(step: Step) -> str:
    """What a step is about, in a few words."""
    match step:
        case DockerBuild() | DockerPush():
            return step.image
        case EmptyBucket():
            return step.bucket
        case CloudBuild():
            return str(step.arguments.get("projectName", ""))
        case Call() | Wait():
            return _subject(step.arguments)


def _subject(arguments: Mapping[str, Any]) -> str:
    names = ("StackName", "FunctionName", "repositoryName", "logGroupName", "Key", "Bucket", "Resource")
    return next((str(arguments[name]) for name in names if name in arguments), "")
