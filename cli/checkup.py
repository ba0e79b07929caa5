"""What the doctor is to look at: a job's needs, and the door to the account or emulator where it would run.

Starts an emulator when there is none to look at. Read next: `infra/aws/doctor/examine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradmux.infra.aws.account import open_account
from gradmux.infra.aws.doctor import Finding, Needs
from gradmux.infra.aws.doctor.finding import failure, warning, well
from gradmux.infra.aws.door import BotoDoor, Door
from gradmux.infra.aws.errors import NO_REGION
from gradmux.infra.aws.observe import find_stack
from gradmux.infra.local import Emulator, EmulatorConfig, detached
from gradmux.infra.local.backend import BUCKET, REGION, emulator_errors, start_emulator
from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError, PreflightError
from gradmux.orchestrator.runs.ownership import distrust, files_of_job
from gradmux.orchestrator.store import open_bucket


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, as given."""

    local: bool
    name: str
    """of the deployment"""
    function: str | None
    bucket: str | None
    workers: int | None


@dataclass(frozen=True, slots=True)
class Checkup:
    """What is to be looked at."""

    door: Door
    needs: Needs


# --- the job -----------------------------------------------------------------------------------------------------


def look_at_job(path: Path, config: JobConfig) -> tuple[list[Finding], int | None]:
    """Whose code it is, whether it can be prepared, and the bytes of its largest model, if so."""
    modules = sorted({model.factory.partition(":")[0] for model in config.models})
    reason = distrust(file for file in files_of_job(path, config) if file.exists())
    if reason:
        # Not even imported: that would run it.
        return [warning("code", reason, f"then make {path.parent} your own, and repeat")], None
    try:
        model_bytes = _largest_model(config, path.parent)
    except ConfigError as error:
        return [failure("job", str(error).partition("\n")[0], "gradmux submit --dry-run tells all of it")], None
    return [
        well("job", f"{path.name} with {', '.join(modules)}, largest model {model_bytes / 2**20:.2f} MB")
    ], model_bytes


def _largest_model(config: JobConfig, folder: Path) -> int:
    from gradmux.orchestrator.materials import Materials
    from gradmux.orchestrator.runs.prepare import prepare_job
    from gradmux.orchestrator.training.memory import largest_bytes
    from gradmux.orchestrator.training.models import prepare

    prepared = prepare_job(config, Materials(), folder, open_bucket)
    return largest_bytes(prepare(plan).module for plan in prepared.models)


# --- the place ---------------------------------------------------------------------------------------------------


@contextmanager
def open_checkup(home: Path, asked: Asked, config: JobConfig | None, model_bytes: int | None) -> Iterator[Checkup]:
    """The door to look through and what is needed behind it. An emulator started for it ends with the context.

    Raises: PreflightError when there is nothing to look at, AwsError.
    """
    if asked.local or (config is not None and config.cluster.backend == "local"):
        with emulator_errors(), _emulator(home, asked, config) as (door, function):
            yield Checkup(door, _needs(asked, config, function, BUCKET, model_bytes, local=True))
    else:
        door = open_account()
        if config is None and not door.region:
            raise PreflightError(f"{NO_REGION}; or look at the emulator: `gradmux doctor --local`")
        function, bucket = _names(door, asked, config)
        yield Checkup(door, _needs(asked, config, function, bucket, model_bytes, local=False))


def _names(door: Door, asked: Asked, config: JobConfig | None) -> tuple[str, str]:
    """Function and bucket: of the options, else of the job, else of the deployment."""
    function, bucket = asked.function, asked.bucket
    if config is not None:
        return function or config.cluster.function, bucket or config.cluster.bucket or ""
    if bucket is None:
        stack = find_stack(door, asked.name)
        if stack is None:
            raise PreflightError(
                f"there is no deployment {asked.name} in {door.region}: run `gradmux deploy`, "
                "or name what you have by --function and --bucket"
            )
        bucket = stack.outputs.get("BucketName", "")
    return function or f"{asked.name}-worker", bucket


@contextmanager
def _emulator(home: Path, asked: Asked, config: JobConfig | None) -> Iterator[tuple[Door, str]]:
    """The emulator of `local up` when it is asked for and runs, else one of our own; and the function's name."""
    running = detached.status(home) if asked.local else None
    if running is not None:
        yield _closed_door(running.lambda_endpoint, running.s3_endpoint), running.started.config["function"]
        return
    with Emulator(EmulatorConfig(warm=1)) if config is None else start_emulator(config) as emulator:
        yield _closed_door(emulator.lambda_endpoint, emulator.s3_endpoint), emulator.config.function


def _closed_door(lambda_url: str, s3_url: str) -> Door:
    """Leads to the emulator alone; the bucket that jobs use there is made."""
    door = BotoDoor.closed(REGION, {"lambda": lambda_url, "s3": s3_url, "sts": s3_url})
    door.call("s3", "create_bucket", {"Bucket": BUCKET})
    return door


def _needs(
    asked: Asked, config: JobConfig | None, function: str, bucket: str, model_bytes: int | None, *, local: bool
) -> Needs:
    if config is None:
        return Needs(function, bucket, workers=asked.workers, local=local)
    cluster = config.cluster
    workers = None if cluster.workers == "auto" else cluster.workers
    return Needs(
        function,
        bucket,
        workers=asked.workers or workers,
        concurrency=cluster.concurrency,
        timeout_s=cluster.timeout_s,
        model_bytes=model_bytes,
        local=local,
    )
