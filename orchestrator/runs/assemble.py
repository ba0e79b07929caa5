"""The parts of one life of a run, each made from the job, where it runs, and where it is kept.

Knows neither the loop nor how a life goes on. Read next: `player.py`, which puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from gradmux.lambda_worker.contract import MAX_REQUEST_BYTES
from gradmux.orchestrator.backends import FleetPlan, Place, find_backend
from gradmux.orchestrator.fleets.calling import MakesRequests, WorkerFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.policies import wait_policy
from gradmux.orchestrator.record import Header
from gradmux.orchestrator.runs.budget import Budget
from gradmux.orchestrator.runs.checkpoints import Checkpoint
from gradmux.orchestrator.runs.history import DONE, MOST, PASSES, RUN, UNRECORDED, WORTH, read_history
from gradmux.orchestrator.runs.life import Life, store_name
from gradmux.orchestrator.runs.paths import RunPaths
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.policy import divided_by, limits
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.runs.tariff import tariff_of
from gradmux.orchestrator.schemes.scheme import Scheme
from gradmux.orchestrator.store import Keys
from gradmux.orchestrator.training.cloud_sum import Setting
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.stored import Shelf
from gradmux.orchestrator.training.stretches import HEADROOM_BYTES, inline_state_bytes
from gradmux.orchestrator.training.trainer import EVENT_INLINE_BYTES, INLINE_BYTES, TorchTrainer

STRETCHES_IN_TIMEOUT = 3
"""A stretch begins no further step when it has taken this part of the timeout: a slow worker still ends in time."""
SNAPSHOTS_IN_REQUEST = 100
"""What is in a request may take so many times the largest snapshot in it: other snapshots, and rows."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """Makes them."""

    prepared: Prepared
    place: Place
    paths: RunPaths
    life: Life
    store: PatientStore
    unrecorded: tuple[int, ...] = ()
    """steps of each model that are done, and that no line of the record until now tells of"""

    @property
    def keys(self) -> Keys:
        """Where what the run keeps in the store lies."""
        return Keys(store_name(self.paths))

    def trainer(self, saved: Checkpoint | None) -> TorchTrainer:
        """The models as they were saved."""
        prepared = self.prepared
        rows = divided_by(prepared.scheme(), prepared.order.batch_size) if prepared.plan.jobs else None
        trainer = TorchTrainer(
            self.prepared.models,
            self.prepared.plan,
            store=self.store,
            keys=self.keys,
            epoch=self.life.epoch,
            inline_bytes=self._inline_bytes(),
            batch_rows=rows,
            stepped=self.prepared.stepped,
            state_bytes=inline_state_bytes(self._message_bytes()),
        )
        for model, state in enumerate(() if saved is None else saved.states):
            trainer.load_state(model, state)
        return trainer

    def _message_bytes(self) -> int:
        """The largest request."""
        limits = find_backend(self.prepared.config.cluster.backend).limits
        most = limits.event_bytes if self.event else limits.request_bytes
        return MAX_REQUEST_BYTES if most is None else most

    def _inline_bytes(self) -> int:
        """Snapshots up to this size travel in requests, of which each may have many."""
        limits, event = find_backend(self.prepared.config.cluster.backend).limits, self.event
        usual, most = (EVENT_INLINE_BYTES, limits.event_bytes) if event else (INLINE_BYTES, limits.request_bytes)
        return usual if most is None else min(usual, most // SNAPSHOTS_IN_REQUEST)

    @property
    def event(self) -> bool:
        """Do workers answer through the store?"""
        return self.prepared.config.cluster.invoke == "event"

    def fleet(self, requests: MakesRequests, shelf: Shelf | None) -> WorkerFleet:
        """What invokes; with a `shelf` results stay in the store."""
        cluster = self.prepared.config.cluster
        return self.place.fleet(
            FleetPlan(
                requests=requests,
                store=self.store,
                run=self.keys.run,
                timeout_s=cluster.timeout_s,
                patience_s=cluster.patience_s,
                shelf=shelf,
            )
        )

    def requests(self, trainer: TorchTrainer, scheme: Scheme, mode: str) -> RequestBuilder:
        """What makes the workers' requests; data and specs are in the store when it is there."""
        prepared = self.prepared
        materials = RunMaterials(
            keys=self.keys,
            bucket=self.place.bucket,
            data=put_dataset(self.store, prepared.train),
            specs=trainer.put_specs(),
            orders=[prepared.order] * prepared.plan.models,
            weights=trainer.weights,
            seeds=trainer.seeds,
            wire=Wire(prepared.wire_dtype(scheme), mode, post=self.event),
            passes=prepared.passes,
            state=trainer.state_of,
            stepped=prepared.stepped,
            budget_s=prepared.config.cluster.timeout_s / STRETCHES_IN_TIMEOUT,
            state_reply_bytes=self._message_bytes() - HEADROOM_BYTES,
        )
        return RequestBuilder(materials, prepared.plan, scheme.chunk_sizes)

    def setting(self, scheme: Scheme) -> Setting:
        """What sums in the cloud have in common."""
        cluster = self.prepared.config.cluster
        return Setting(
            keys=self.keys,
            bucket=self.place.bucket,
            epoch=self.life.epoch,
            dtype=self.prepared.wire_dtype(scheme),
            most=min(scheme.workers, cluster.concurrency),
            attempts=cluster.attempts,
        )

    def header(self, scheme: Scheme, done: tuple[int, ...], told: Mapping[str, Any] = MappingProxyType({})) -> Header:
        """The record's first line of this life, or of a segment of it; `done`: steps of each model until now."""
        config, plan = self.prepared.config, self.prepared.plan
        return Header(
            run=self.paths.run,
            scheme=config.scheme.name,
            params=dict(self.prepared.params),
            workers=scheme.workers,
            models=plan.models,
            steps=plan.steps,
            seed=config.training.seed,
            wait={"policy": config.scheme.closing.wait, **asdict(wait_policy(config.scheme.closing))},
            limits=asdict(limits(config)),
            first=plan.first if isinstance(plan, JobPlan) else 0,
            epoch=self.life.epoch,
            names=tuple(model.name for model in self.prepared.models),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            extra={
                RUN: self.keys.run,
                DONE: done,
                **({UNRECORDED: self.unrecorded} if any(self.unrecorded) else {}),
                PASSES: self.prepared.passes,
                WORTH: self.prepared.worth.to_dict(),
                **told,
                **({MOST: self.prepared.most} if self.prepared.most else {}),
            },
        )

    def budget(self) -> Budget | None:
        """What is left of the money that the run may cost, by its record until now, at the prices of `gradmux cost`.

        Raises: ConfigError when the user's own table of prices cannot be read.
        """
        cluster = self.prepared.config.cluster
        if cluster.max_cost_usd is None:
            return None
        before, tariff = read_history(self.paths.record), tariff_of(self.paths, cluster)
        billed_s, calls = before.billed_s + before.beside.billed_s, before.invocations + before.beside.calls
        return Budget(cluster.max_cost_usd, tariff.memory_mb, tariff.prices, billed_s, calls, self.paths.run)
