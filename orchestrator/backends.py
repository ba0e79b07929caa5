"""Where jobs run: what a backend is, and the table of those that are installed.

A backend joins by an entry point of group "gradmux.backends" that names its object; `infra/local/backend.py` and
`infra/aws/backend.py` are two. Knows no concrete one. Read next: either of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.former import why_missing

if TYPE_CHECKING:
    import botocore.session

    from gradmux.orchestrator.config import JobConfig
    from gradmux.orchestrator.ports import StoreClient

ENTRY_POINTS = "gradmux.backends"


@dataclass(frozen=True, slots=True)
class PlaceNote:
    """Where a life runs: what another process needs to reach its workers."""

    backend: str
    bucket: str
    s3_url: str | None = None
    """None: as AWS's own tools find it"""
    function: str = ""
    timeout_s: float = 60.0
    """of the function: how long an invocation can still run"""
    lambda_url: str | None = None
    """None: as AWS's own tools find it"""
    memory_mb: int | None = None
    """of the function, by which it is billed; None: as the job says"""
    arm: bool = False
    """is it an arm64 function, which costs less?"""


@dataclass(frozen=True, slots=True)
class Billed:
    """What a function is billed by."""

    memory_mb: int | None = None
    """None: not known, and taken to be as the job says"""
    arm: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs."""

    session: Callable[[], botocore.session.Session]
    """a new one, with the credentials as they are now"""
    lambda_url: str | None
    """None: as AWS's own tools find it"""
    s3_url: str | None
    bucket: str
    function: str
    billed: Billed = Billed()
    ended: Callable[[], str] = str
    """why nothing answers here any more, in one line; empty while something may"""

    def describe(self) -> str:
        """The endpoints that are really used, in one line."""
        from gradmux.orchestrator.aws import resolve_endpoint

        endpoints = [
            resolve_endpoint(self.session(), service, url).url
            for service, url in (("lambda", self.lambda_url), ("s3", self.s3_url))
        ]
        return f"Lambda {self.function} at {endpoints[0]}, S3 {self.bucket} at {endpoints[1]}"

    def note(self, config: JobConfig) -> PlaceNote:
        """What another process needs to reach the workers of a run here."""
        cluster, billed = config.cluster, self.billed
        return PlaceNote(
            cluster.backend,
            self.bucket,
            self.s3_url,
            self.function,
            cluster.timeout_s,
            self.lambda_url,
            billed.memory_mb,
            billed.arm,
        )


class Backend(Protocol):
    """What an entry point of "gradmux.backends" names."""

    @property
    def mirrored(self) -> bool:
        """Does a run keep its folder in the store, too? Not where the store ends with the run."""
        ...

    def check(self, config: JobConfig, folder: Path) -> JobConfig:
        """The job with what is this backend's own in it checked, and paths in it made absolute.

        Relative paths are meant from `folder`. Raises: ConfigError.
        """
        ...

    def open(self, config: JobConfig, life: int = 0) -> AbstractContextManager[Place]:
        """A place for one life of a run, for as long as the context is open. Raises: QuotaError, PreflightError."""
        ...

    def store_of(self, note: PlaceNote) -> StoreClient:
        """The store of a run that another process runs, or ran. Raises: PreflightError."""
        ...


def find_backend(name: str) -> Backend:
    """The backend called `name`. Raises: ConfigError with the closest name and all names, or why it cannot be had."""
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        close = get_close_matches(name, found.names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"there is no backend {name!r}{hint}; installed: {', '.join(sorted(found.names)) or 'none'}")
    point = found[name]
    try:
        backend: Backend = point.load()
    except Exception as error:  # of a package from elsewhere: importing it may raise anything
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"backend {name!r} cannot be loaded from {point.value}: {type(error).__name__}: {reason}"
            f"{why_missing(error)}; install the package that brings it anew"
        ) from error
    return backend


def open_place(config: JobConfig, life: int = 0) -> AbstractContextManager[Place]:
    """The job's backend, ready.

    Each `life` of a run draws its faults anew: else one that ended a life would end every other at the same place.
    Raises: QuotaError when the account allows fewer calls at once than the job needs, PreflightError.
    """
    return find_backend(config.cluster.backend).open(config, life)
