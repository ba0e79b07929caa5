"""Where a job runs: the emulator with clients that can reach nothing else, or AWS as its own tools find it.

Starts and names; runs nothing, and imports no torch. Read next: `wiring.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
import botocore.session

from gradmux.cli.profiles import find_profile
from gradmux.infra.closed_session import closed_session
from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig, EmulatorError, FaultKind, FaultPlan, FaultRate
from gradmux.orchestrator.aws import new_session, resolve_endpoint
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.runs.life import PlaceNote
from gradmux.orchestrator.store import S3Store

BUCKET = "gradmux"
FUNCTION = "gradmux-worker"
REGION = "us-east-1"
REACH_S = 5.0
"""how long another process's store is tried"""


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
    """why nobody answers here any more, in one line; empty while somebody may"""

    def describe(self) -> str:
        """The endpoints that are really used, in one line."""
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


@contextmanager
def open_place(config: JobConfig, life: int = 0) -> Iterator[Place]:
    """The job's backend, ready; an emulator of its own runs while the context is open.

    Each `life` of a run draws its faults anew: else one that ended a life would end every other at the same place.
    Raises: QuotaError when the account allows fewer calls at once than the job needs, PreflightError.
    """
    if config.cluster.backend == "aws":
        from gradmux.cli.account import open_account
        from gradmux.cli.preflight import billed_as, require_concurrency

        assert config.cluster.bucket is not None
        door = open_account()
        require_concurrency(door, config.cluster)
        billed = billed_as(door, config.cluster)
        yield Place(new_session, None, None, config.cluster.bucket, config.cluster.function, billed)
        return
    with emulator_errors(), start_emulator(config, life) as emulator:
        yield local_place(emulator)


def store_of(note: PlaceNote) -> S3Store:
    """The store of a run that another process runs, or ran. Raises PreflightError."""
    session = new_session() if note.backend == "aws" else _local_session()
    return S3Store(note.bucket, endpoint_url=note.s3_url, session=session, patience_s=REACH_S)


@contextmanager
def emulator_errors() -> Iterator[None]:
    """Within it, what the emulator refuses is ours to tell: exit code 3, one line."""
    try:
        yield
    except EmulatorError as error:
        raise PreflightError(f"emulator: {error}") from error


def local_place(emulator: Emulator) -> Place:
    """The emulator, reached by clients that know no other endpoint and no real credentials."""

    def ended() -> str:
        how = emulator.ended()
        return f"the emulator is gone ({how}); a run that is resumed has a new one" if how else ""

    place = Place(_local_session, emulator.lambda_endpoint, emulator.s3_endpoint, BUCKET, FUNCTION, ended=ended)
    boto3.Session(botocore_session=place.session()).client("s3", endpoint_url=place.s3_url).create_bucket(Bucket=BUCKET)
    return place


def open_bucket(bucket: str) -> S3Store:
    """A bucket of the user's own, with the user's own credentials."""
    return S3Store(bucket)


def start_emulator(config: JobConfig, life: int = 0) -> Emulator:
    """The emulator that the job's sections ask for; use it as a context manager."""
    workers = config.cluster.most_workers
    section = config.emulator
    settings = EmulatorConfig(
        function=FUNCTION,
        memory_mb=config.cluster.memory_mb,
        timeout_s=config.cluster.timeout_s,
        concurrency=config.cluster.concurrency,
        warm=workers,
        delays=delay_plan(section.delays, workers=workers, time_scale=section.time_scale, seed=section.seed),
        faults=fault_plan(section.faults, seed=section.seed + life),
        region=REGION,
    )
    return Emulator(settings)


def delay_plan(name: str, *, workers: int, time_scale: float, seed: int) -> DelayPlan:
    """The delays that the emulator is to play: "none", a profile's path or a generator. Raises: ConfigError."""
    if name == "none":
        return DelayPlan()
    profile = find_profile(name, workers=workers, seed=seed)
    if profile.failed.any():
        raise ConfigError(f"delays {name}: holds failed invocations, which are no delays; inject them as faults")
    return DelayPlan.of(
        profile.delays_s.tolist(),
        slope_s=profile.slope_s or 0.0,
        base_load=profile.reference_load(),
        time_scale=time_scale,
        seed=seed,
    )


def fault_plan(rates: Mapping[str, float], *, seed: int) -> FaultPlan:
    """The faults that the emulator is to inject. Raises: ConfigError for a kind that it does not know."""
    kinds = {kind.value: kind for kind in FaultKind}
    for kind in rates:
        if kind not in kinds:
            raise ConfigError(f"faults: there is no kind {kind!r}; kinds: {', '.join(kinds)}")
    try:
        return FaultPlan(rates=tuple(FaultRate(kinds[kind], rate) for kind, rate in rates.items()), seed=seed)
    except EmulatorError as error:
        raise ConfigError(f"faults: {error}") from error


def _local_session() -> botocore.session.Session:
    return closed_session(REGION)
