"""Puts a run together: the only place that knows every concrete class. The same wiring serves emulator and AWS.

    prepared = prepare_job(...)                   # nothing is wrong with the job (`preparation.py`)
    with open_place(config) as place:             # emulator or AWS (`places.py`)
        trained = run_job(prepared, place, new_run(home, config.name))

Read next: `orchestrator/loop.py`, which plays what is put together here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from cli.home import RunPaths, new_run
from cli.options import Settings
from cli.places import Place, open_bucket, open_place
from cli.policy import limits, wait_policy
from cli.preparation import Prepared, prepare_job
from orchestrator.api import Materials, Trained
from orchestrator.config import JobConfig
from orchestrator.distances import RecordedDistances
from orchestrator.fleets.calling import Function
from orchestrator.fleets.lambda_fleet import LambdaFleet
from orchestrator.loop import Loop, RunSummary
from orchestrator.record import Decoded, FileRecord, Header, Line, RoundLine
from orchestrator.results import ModelResult, RunResult
from orchestrator.schemes.scheme import Key, Scheme
from orchestrator.store import Keys, S3Store
from orchestrator.training.checkpoint import save_weights
from orchestrator.training.data import Dataset, put_dataset
from orchestrator.training.distances import DistanceTrainer
from orchestrator.training.gradients import CodedResult
from orchestrator.training.requests import RequestBuilder, RunMaterials, Wire, wire_dtype
from orchestrator.training.trainer import TorchTrainer

log = logging.getLogger(__name__)

POLL_S = 0.5
"""how long the loop waits at most before it looks whether it was asked to stop"""
OnStep = Callable[[Decoded], None]


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
    config, keys = prepared.config, Keys(paths.run)
    trainer = TorchTrainer(prepared.models, prepared.plan, store=store, keys=keys, clip_norm=config.training.clip_norm)

    def held(key: Key) -> CodedResult:
        """The loop is put together last."""
        result: CodedResult = loop.result(key)
        return result

    measuring = DistanceTrainer(trainer, prepared.plan, held)
    distances = RecordedDistances(measuring)
    scheme = prepared.scheme(distances)
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
    fleet = LambdaFleet(
        Function(place.function, timeout_s=config.cluster.timeout_s),
        builder,
        store,
        run=paths.run,
        session=place.session,
        endpoint_url=place.lambda_url,
    )
    loop = Loop(
        scheme=scheme,
        plan=prepared.plan,
        rounds=prepared.rounds(scheme),
        fleet=fleet,
        trainer=measuring if scheme.reuses_results else trainer,
        recorder=record,
        asked=distances.take,
        on_step=on_step,
        poll_s=POLL_S,
    )
    try:
        fleet.check()
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
