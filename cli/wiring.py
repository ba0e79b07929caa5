"""Puts a job together: the only place that knows every concrete class. The same wiring serves emulator and AWS.

    prepared = prepare_job(...)                       # nothing is wrong with the job (`preparation.py`)
    with start_emulator(config) as emulator:
        trained = run_job(prepared, local_place(emulator), paths)

Read next: `orchestrator/loop.py`, which plays what is put together here.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import boto3
import botocore.session

from cli.home import RunPaths, new_run
from cli.options import Settings
from cli.policy import limits, wait_policy
from cli.preparation import Prepared, prepare_job
from cli.profiles import find_profile
from infra.local import DelayPlan, Emulator, EmulatorConfig, EmulatorError, FaultKind, FaultPlan, FaultRate
from orchestrator.api import Materials, Trained
from orchestrator.aws import new_session, resolve_endpoint
from orchestrator.config import EmulatorConfig as EmulatorSection
from orchestrator.config import JobConfig
from orchestrator.errors import ConfigError, PreflightError
from orchestrator.loop import Loop, RunSummary
from orchestrator.record import Decoded, FileRecord, Header, Line, RoundLine
from orchestrator.results import ModelResult, RunResult
from orchestrator.schemes.scheme import Scheme
from orchestrator.store import Keys, S3Store
from orchestrator.training.checkpoint import save_weights
from orchestrator.training.data import Dataset, put_dataset
from orchestrator.training.requests import RequestBuilder, RunMaterials, Wire, wire_dtype
from orchestrator.training.trainer import TorchTrainer

log = logging.getLogger(__name__)

BUCKET = "gradmux"
FUNCTION = "gradmux-worker"
REGION = "us-east-1"
POLL_S = 0.5
"""how long the loop waits at most before it looks whether it was asked to stop"""
OnStep = Callable[[Decoded], None]


# --- places ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs."""

    session: botocore.session.Session
    lambda_url: str | None
    """None: as AWS's own tools find it"""
    s3_url: str | None
    bucket: str
    function: str

    def describe(self) -> str:
        """The endpoints that are really used, in one line."""
        endpoints = [
            resolve_endpoint(self.session, service, url).url
            for service, url in (("lambda", self.lambda_url), ("s3", self.s3_url))
        ]
        return f"Lambda {self.function} at {endpoints[0]}, S3 {self.bucket} at {endpoints[1]}"


@contextmanager
def open_place(config: JobConfig) -> Iterator[Place]:
    """The job's backend, ready; an emulator of its own runs while the context is open."""
    if config.cluster.backend == "aws":
        assert config.cluster.bucket is not None
        yield Place(new_session(), None, None, config.cluster.bucket, config.cluster.function)
        return
    try:
        with start_emulator(config) as emulator:
            yield local_place(emulator)
    except EmulatorError as error:
        raise PreflightError(f"emulator: {error}") from error


def local_place(emulator: Emulator) -> Place:
    """The emulator, reached by clients that know no other endpoint and no real credentials."""
    session = _isolated_session()
    place = Place(session, emulator.lambda_endpoint, emulator.s3_endpoint, BUCKET, FUNCTION)
    boto3.Session(botocore_session=session).client("s3", endpoint_url=place.s3_url).create_bucket(Bucket=BUCKET)
    return place


def open_bucket(bucket: str) -> S3Store:
    """A bucket of the user's own, with the user's own credentials."""
    return S3Store(bucket)


def start_emulator(config: JobConfig) -> Emulator:
    """The emulator that the job's sections ask for; use it as a context manager."""
    workers = config.cluster.workers
    assert workers != "auto"
    section = config.emulator
    settings = EmulatorConfig(
        function=FUNCTION,
        memory_mb=config.cluster.memory_mb,
        timeout_s=config.cluster.timeout_s,
        concurrency=config.cluster.concurrency,
        warm=workers,
        delays=delay_plan(section, workers),
        faults=fault_plan(section),
        region=REGION,
    )
    return Emulator(settings)


def delay_plan(section: EmulatorSection, workers: int) -> DelayPlan:
    """The delays that the emulator is to play. Raises: ConfigError for a profile that cannot be had."""
    if section.delays == "none":
        return DelayPlan()
    profile = find_profile(section.delays, workers=workers, seed=section.seed)
    if profile.failed.any():
        raise ConfigError(f"emulator.delays: {section.delays} holds failed invocations; say faults in emulator.faults")
    return DelayPlan.of(
        profile.delays_s.tolist(),
        slope_s=profile.slope_s or 0.0,
        base_load=profile.reference_load(),
        time_scale=section.time_scale,
        seed=section.seed,
    )


def fault_plan(section: EmulatorSection) -> FaultPlan:
    """The faults that the emulator is to inject. Raises: ConfigError for a kind that it does not know."""
    kinds = {kind.value: kind for kind in FaultKind}
    for kind in section.faults:
        if kind not in kinds:
            raise ConfigError(f"emulator.faults: there is no kind {kind!r}; kinds: {', '.join(kinds)}")
    try:
        rates = tuple(FaultRate(kinds[kind], rate) for kind, rate in section.faults.items())
        return FaultPlan(rates=rates, seed=section.seed)
    except EmulatorError as error:
        raise ConfigError(f"emulator.faults: {error}") from error


def _isolated_session() -> botocore.session.Session:
    """Reads no AWS file and no AWS variable: in local mode nothing may lead to a real account."""
    nothing = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
        "region": ("region", None, REGION, None),
    }
    session = botocore.session.Session(session_vars=nothing)
    session.set_credentials("local", "local", "local")
    return session


# --- runs --------------------------------------------------------------------------------------------------------


def run_job(prepared: Prepared, place: Place, paths: RunPaths, on_step: OnStep | None = None) -> Trained:
    """Trains to the end, evaluates, and writes record, job, weights and result to the run's folder.

    Raises: what ends a run (`orchestrator.errors`); the record then says why.
    """
    store = S3Store(place.bucket, endpoint_url=place.s3_url, session=place.session)
    record = _WatchedRecord(FileRecord(paths.record))
    try:
        trainer, summary = _play(prepared, place, paths, store, record, on_step)
    finally:
        record.close()
        store.close()
    result = RunResult(
        run=paths.run,
        state="done",
        scheme=prepared.config.scheme.name,
        params=prepared.params,
        workers=prepared.scheme().workers,
        load=record.load,
        rounds=summary.rounds,
        wall_s=summary.wall_s,
        billed_s=summary.billed_s,
        invocations=summary.invocations,
        models=_finish_models(prepared, trainer, paths, record.losses),
        max_residual=summary.max_residual,
        max_amplification=summary.max_amplification,
        record=paths.record,
    )
    paths.result.write_text(json.dumps(result.to_dict(), indent=2))
    return Trained(result, {plan.name: trainer.module(index) for index, plan in enumerate(prepared.models)})


def _play(
    prepared: Prepared,
    place: Place,
    paths: RunPaths,
    store: S3Store,
    record: _WatchedRecord,
    on_step: OnStep | None,
) -> tuple[TorchTrainer, RunSummary]:
    """The run itself: from the first upload to the last answer that is still billed."""
    config, keys, scheme = prepared.config, Keys(paths.run), prepared.scheme()
    trainer = TorchTrainer(prepared.models, prepared.plan, store=store, keys=keys, clip_norm=config.training.clip_norm)
    materials = RunMaterials(
        keys=keys,
        bucket=place.bucket,
        data=put_dataset(store, prepared.train.arrays),
        specs=trainer.put_specs(),
        orders=[prepared.order] * prepared.plan.models,
        weights=trainer.weights,
        seed=config.training.seed,
        wire=Wire(dtype=wire_dtype([config.training.dtype], binary=scheme.binary)),
    )
    builder = RequestBuilder(materials, prepared.plan, scheme.chunk_sizes)
    paths.job.write_text(config.model_dump_json(indent=2))
    record.write(_header(prepared, paths, scheme))
    fleet = _fleet(place, builder, config, store)
    loop = Loop(
        scheme=scheme,
        plan=prepared.plan,
        rounds=prepared.rounds(scheme),
        fleet=fleet,
        trainer=trainer,
        recorder=record,
        on_step=on_step,
        poll_s=POLL_S,
    )
    try:
        loop.run()
        return trainer, loop.drain(patience_s=config.cluster.timeout_s)
    finally:
        fleet.close()


def _header(prepared: Prepared, paths: RunPaths, scheme: Scheme) -> Header:
    config = prepared.config
    return Header(
        run=paths.run,
        scheme=config.scheme.name,
        params=dict(prepared.params),
        workers=scheme.workers,
        models=prepared.plan.models,
        steps=prepared.plan.steps,
        seed=config.training.seed,
        wait={"policy": config.scheme.wait, **asdict(wait_policy(config.scheme))},
        limits=asdict(limits(config)),
        names=tuple(plan.name for plan in prepared.models),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


class _WatchedRecord:
    """A recorder that also keeps the few figures that the result needs."""

    def __init__(self, record: FileRecord) -> None:
        self._record = record
        self.load = 0.0
        """largest fraction of a batch that a worker processed in one round"""
        self.losses: dict[int, float] = {}
        """model -> mean loss over its last batch"""

    def write(self, line: Line) -> None:
        self._record.write(line)
        if isinstance(line, Header):
            return
        self.losses.update({decoded.model: decoded.loss for decoded in line.decoded})
        if isinstance(line, RoundLine):
            self.load = max(self.load, line.load)
            _log_round(line)

    def close(self) -> None:
        self._record.close()


def _log_round(line: RoundLine) -> None:
    took_s, decoded = line.end_s - line.start_s, len(line.decoded)
    log.info("round %d: %.3f s, %d late, %d decoded", line.round, took_s, len(line.late), decoded)


def _finish_models(
    prepared: Prepared, trainer: TorchTrainer, paths: RunPaths, losses: dict[int, float]
) -> tuple[ModelResult, ...]:
    """Saves the weights and evaluates every model."""
    paths.weights("").parent.mkdir(exist_ok=True)
    results = []
    for index, plan in enumerate(prepared.models):
        checkpoint = paths.weights(plan.name)
        checkpoint.write_bytes(save_weights(trainer.module(index)))
        told = {} if prepared.eval is None else _evaluation(trainer, index, prepared.eval)
        results.append(ModelResult(plan.name, prepared.plan.steps, losses[index], told, checkpoint))
    return tuple(results)


def _evaluation(trainer: TorchTrainer, model: int, rows: Dataset) -> dict[str, float]:
    told = trainer.evaluate(model, rows)
    return {"loss": told.loss, **({} if told.accuracy is None else {"accuracy": told.accuracy})}


# --- backends of the Python door ---------------------------------------------------------------------------------


def train_locally(config: JobConfig, materials: Materials, home: Path | None) -> Trained:
    """The backend "local": an emulator of its own for the time of the run."""
    return _train(config, materials, home)


def train_on_aws(config: JobConfig, materials: Materials, home: Path | None) -> Trained:
    """The backend "aws": the function and bucket that `cluster` names, found and reached as AWS's own tools do."""
    cluster = config.cluster.model_copy(update={"backend": "aws"})
    return _train(config.model_copy(update={"cluster": cluster}), materials, home)


def _train(config: JobConfig, materials: Materials, home: Path | None) -> Trained:
    prepared = prepare_job(config, materials, Path.cwd(), open_bucket)
    with open_place(config) as place:
        return run_job(prepared, place, new_run(home or Settings().home, config.name))
