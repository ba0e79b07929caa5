"""The backend "local": an emulator of its own for every life of a run, with clients that can reach nothing else.

Starts and names; runs nothing, and imports no torch; boto3 only where an emulator is started. Read next: `emulator.py`,
and `section.py` for the table [emulator].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gradmux.infra.local.section import EmulatorSection
from gradmux.orchestrator.backends import Examination, Limits, Pace, PlaceNote
from gradmux.orchestrator.config import JobConfig, Section
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.prices import PRICES, Prices

if TYPE_CHECKING:
    import botocore.session

    from gradmux.infra.lambda_place import LambdaPlace
    from gradmux.infra.local import DelayPlan, Emulator, FaultPlan
    from gradmux.orchestrator.delays.calls import CallDelays
    from gradmux.orchestrator.findings import Finding
    from gradmux.orchestrator.ports import StoreClient

NAME = "local"
BUCKET = "gradmux"
FUNCTION = "gradmux-worker"
OF_STEPS = ("torch._dynamo",)
"""what torch imports with the first optimizer, which takes a second: for workers that make steps"""
REGION = "us-east-1"
SECTION = "emulator"


class LocalBackend:
    """`backends.Backend` over the emulator, which has Lambda's limits."""

    name = NAME
    mirrored = False
    workers_outlive_run = False

    @property
    def limits(self) -> Limits:
        from gradmux.infra.lambda_place import LIMITS

        return LIMITS

    @property
    def prices(self) -> Prices:
        """AWS's: it costs nothing, and what is told is what it would have cost."""
        return PRICES

    @property
    def sections(self) -> Mapping[str, type[Section]]:
        return {SECTION: EmulatorSection}

    def validate(self, job: JobConfig) -> None:
        """Every combination of keys is possible; `prepare` tries delays and faults."""

    def prepare(self, job: JobConfig, folder: Path) -> JobConfig:
        section = _section(job)
        fault_plan(section.faults, seed=section.seed)
        beside = folder / section.delays
        delays = str(beside) if beside.exists() else section.delays
        delay_plan(delays, workers=job.cluster.most_workers, time_scale=section.time_scale, seed=section.seed)
        if Path(delays).exists():
            delays = str(Path(delays).resolve())
        return job.with_section(SECTION, section.model_copy(update={"delays": delays}))

    @contextmanager
    def open(self, job: JobConfig, life: int = 0) -> Iterator[LambdaPlace]:
        """Each `life` of a run draws its faults anew: else one that ended a life would end every other there."""
        with emulator_errors(), start_emulator(job, life) as emulator:
            yield local_place(emulator)

    def reopen(self, note: PlaceNote) -> StoreClient:
        from gradmux.infra.lambda_place import reopened

        return reopened(note, local_session(*note.own.get("access", ())))

    def with_faults(self, job: JobConfig, rates: Mapping[str, float]) -> JobConfig:
        """`backends.InjectsFaults`"""
        section = _section(job)
        faults = {**section.faults, **rates}
        fault_plan(faults, seed=section.seed)
        return job.with_section(SECTION, section.model_copy(update={"faults": faults}))

    def delays(self, job: JobConfig) -> CallDelays:
        """Those that the emulator plays."""
        import numpy as np

        from gradmux.orchestrator.delays.calls import CallDelays, How
        from gradmux.orchestrator.delays.find import find_profile

        section = _section(job)
        if section.delays == "none":
            return CallDelays("none", How.LONGER, np.zeros((1, 1)))
        profile = find_profile(section.delays, workers=job.cluster.most_workers, seed=section.seed)
        scale, slope_s = section.time_scale, profile.slope_s or 0.0
        name = section.delays if scale == 1.0 else f"{section.delays} x {scale:g}"
        failures, load = profile.failures(job.cluster.timeout_s).scaled(scale), profile.reference_load()
        delays_s = profile.delays_s * scale
        return CallDelays(name, How.LONGER, delays_s, slope_s * scale, load, profile.scales, failures)

    def pace(self, job: JobConfig) -> Pace:
        """Its workers are processes of this machine."""
        return Pace()

    def examine(self, asked: Examination) -> Iterator[Finding]:
        from gradmux.infra.local.examine import examine

        return examine(asked)


LOCAL = LocalBackend()


def _section(job: JobConfig) -> EmulatorSection:
    return job.section(SECTION, EmulatorSection)


@contextmanager
def emulator_errors() -> Iterator[None]:
    """Within it, what the emulator refuses is ours to tell: exit code 3, one line."""
    from gradmux.infra.local import EmulatorError

    try:
        yield
    except EmulatorError as error:
        raise PreflightError(f"emulator: {error}") from error


def local_place(emulator: Emulator) -> LambdaPlace:
    """The emulator, reached by clients that know no other endpoint and no real credentials. Makes its bucket."""
    import boto3

    from gradmux.infra.lambda_place import LambdaPlace

    def ended() -> str:
        how = emulator.ended()
        return f"the emulator is gone ({how}); a run that is resumed has a new one" if how else ""

    access = (emulator.secret.access_key, emulator.secret.secret_key)
    place = LambdaPlace(
        NAME,
        lambda: local_session(*access),
        BUCKET,
        FUNCTION,
        emulator.config.timeout_s,
        emulator.lambda_endpoint,
        emulator.s3_endpoint,
        ended=ended,
        access=access,
    )
    boto3.Session(botocore_session=place.session()).client("s3", endpoint_url=place.s3_url).create_bucket(Bucket=BUCKET)
    return place


def start_emulator(config: JobConfig, life: int = 0) -> Emulator:
    """The emulator that the job's sections ask for; use it as a context manager."""
    from gradmux.infra.local import Emulator, EmulatorConfig

    workers, section = config.cluster.most_workers, _section(config)
    settings = EmulatorConfig(
        function=FUNCTION,
        memory_mb=config.cluster.memory_mb,
        timeout_s=config.cluster.timeout_s,
        concurrency=config.cluster.concurrency,
        warm=workers,
        preload=EmulatorConfig().preload + (OF_STEPS if config.scheme.name == "stretch" else ()),
        delays=delay_plan(section.delays, workers=workers, time_scale=section.time_scale, seed=section.seed),
        faults=fault_plan(section.faults, seed=section.seed + life),
        region=REGION,
    )
    return Emulator(settings)


def delay_plan(name: str, *, workers: int, time_scale: float, seed: int) -> DelayPlan:
    """The delays that the emulator is to play: "none", a profile's path or a generator. Raises: ConfigError."""
    from gradmux.infra.local import DelayPlan
    from gradmux.orchestrator.delays.find import find_profile

    if name == "none":
        return DelayPlan()
    profile = find_profile(name, workers=workers, seed=seed)
    return DelayPlan.of(
        profile.delays_s.tolist(),
        found_s=profile.found_s.tolist() if profile.failed.any() else (),
        slope_s=profile.slope_s or 0.0,
        base_load=profile.reference_load(),
        time_scale=time_scale,
        seed=seed,
        scales=profile.scales,
    )


def fault_plan(rates: Mapping[str, float], *, seed: int) -> FaultPlan:
    """The faults that the emulator is to inject. Raises: ConfigError for a kind that it does not know."""
    from gradmux.infra.local import EmulatorError, FaultKind, FaultPlan, FaultRate

    kinds = {kind.value: kind for kind in FaultKind}
    for kind in rates:
        if kind not in kinds:
            raise ConfigError(f"faults: there is no kind {kind!r}; kinds: {', '.join(kinds)}")
    try:
        return FaultPlan(rates=tuple(FaultRate(kinds[kind], rate) for kind, rate in rates.items()), seed=seed)
    except EmulatorError as error:
        raise ConfigError(f"faults: {error}") from error


def local_session(*access: str) -> botocore.session.Session:
    """Leads to nothing but the endpoints that are given beside it. `access`: an emulator's key id and secret."""
    from gradmux.infra.closed_session import closed_session

    return closed_session(REGION, *access)
