"""The backend "local": an emulator of its own for every life of a run, with clients that can reach nothing else.

Starts and names; runs nothing, and imports no torch. Read next: `emulator.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
import botocore.session

from gradmux.infra.closed_session import closed_session
from gradmux.infra.local import DelayPlan, Emulator, EmulatorConfig, EmulatorError, FaultKind, FaultPlan, FaultRate
from gradmux.orchestrator.backends import Place, PlaceNote
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.delays.find import find_profile
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.store import S3Store

BUCKET = "gradmux"
FUNCTION = "gradmux-worker"
REGION = "us-east-1"
REACH_S = 5.0
"""how long another process's store is tried"""


class LocalBackend:
    """`backends.Backend` over the emulator."""

    mirrored = False

    def check(self, config: JobConfig, folder: Path) -> JobConfig:
        """Delays and faults can be had; the path of a delay profile becomes absolute."""
        section = config.emulator
        fault_plan(section.faults, seed=section.seed)
        beside = folder / section.delays
        delays = str(beside) if beside.exists() else section.delays
        delay_plan(delays, workers=config.cluster.most_workers, time_scale=section.time_scale, seed=section.seed)
        if Path(delays).exists():
            delays = str(Path(delays).resolve())
        return config.model_copy(update={"emulator": section.model_copy(update={"delays": delays})})

    @contextmanager
    def open(self, config: JobConfig, life: int = 0) -> Iterator[Place]:
        with emulator_errors(), start_emulator(config, life) as emulator:
            yield local_place(emulator)

    def store_of(self, note: PlaceNote) -> S3Store:
        return S3Store(note.bucket, endpoint_url=note.s3_url, session=_local_session(), patience_s=REACH_S)


LOCAL = LocalBackend()


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
