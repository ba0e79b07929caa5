"""Real fleets over an emulator with the real worker, as a harness of the contract suite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import botocore.session
import numpy as np

from benchmarks.boto3_fleet import Boto3Fleet
from gradmux.infra.local import DelayPlan, Emulator, FaultKind, FaultPlan, ScheduledFault
from gradmux.orchestrator.aws import new_session
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.store import Keys, S3Store
from gradmux.orchestrator.training.data import put_dataset
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import BatchOrder
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire
from gradmux.orchestrator.training.trainer import TorchTrainer
from tests.orchestrator.training.bench import make_dataset, mlp

BUCKET = "fleet-tests"
RUN = "contract"
"""Of the data. Each fleet that is opened has a run of its own: late replies to one that was closed are not its own."""

RealFleet = type[LambdaFleet] | type[Boto3Fleet]


def local_session(emulator: Emulator) -> botocore.session.Session:
    """A session with the emulator's credentials, whatever the environment says."""
    session = new_session()
    session.set_config_variable("region", emulator.config.region)
    session.set_credentials(emulator.secret.access_key, emulator.secret.secret_key)
    return session


@dataclass
class EmulatedHarness:
    """Everything that the suite's invocations need lies in S3."""

    emulator: Emulator
    kind: RealFleet
    events: bool = False
    """invoked as events, with replies through S3"""
    unit_s: float = 0.1
    has_results: bool = True
    store: S3Store = field(init=False)

    def __post_init__(self) -> None:
        session = local_session(self.emulator)
        s3 = boto3.Session(botocore_session=session).client("s3", endpoint_url=self.emulator.s3_endpoint)
        s3.create_bucket(Bucket=BUCKET)
        self.store = S3Store(BUCKET, endpoint_url=self.emulator.s3_endpoint, session=session)
        jobs, keys = JobPlan(models=1, steps=1), Keys(RUN)
        dataset = make_dataset()
        trainer = TorchTrainer([ModelPlan("m", mlp)], jobs, store=self.store, keys=keys)
        trainer.publish(0)
        materials = RunMaterials(
            keys=keys,
            bucket=BUCKET,
            data=put_dataset(self.store, dataset),
            specs=trainer.put_specs(),
            orders=[BatchOrder(dataset.rows, 20)],
            weights=trainer.weights,
            seeds=trainer.seeds,
            wire=Wire(post=self.events),
        )
        self._materials, self._jobs, self._opened = materials, jobs, 0

    def open(
        self, delays: Sequence[Sequence[float]], failing: Collection[tuple[int, int]] = ()
    ) -> LambdaFleet | Boto3Fleet:
        self.emulator.set_delays(DelayPlan.of(delays, time_scale=self.unit_s))
        faults = tuple(ScheduledFault(round, worker, FaultKind.ERROR) for round, worker in failing)
        self.emulator.set_faults(FaultPlan(schedule=faults))
        self._opened += 1
        run, name = f"{RUN}-{self._opened}", self.emulator.config.function
        builder = RequestBuilder(replace(self._materials, keys=Keys(run)), self._jobs, np.array([0.5, 0.5]))
        place: dict[str, Any] = {"session": local_session(self.emulator), "endpoint_url": self.emulator.lambda_endpoint}
        if self.events:  # nobody tells of a failure, so that only the limit of silence does
            function = Function(name, timeout_s=10 * self.unit_s)
            return LambdaFleet(function, builder, self.store, run=run, silence_s=10 * self.unit_s, **place)
        function = Function(name, timeout_s=self.emulator.config.timeout_s)
        return self.kind(function, builder, self.store, run=run, **place)
