"""A whole run over the real stack, open to tests: emulator processes, HTTP, torch workers, the loop, a record.

It puts together what `orchestrator/runs/` does for users, but keeps every part in hand. Read next: `test_exactness.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import boto3

from gradmux.infra.local import DelayPlan, Emulator, FaultPlan
from gradmux.orchestrator.delays import generate
from gradmux.orchestrator.fleets.calling import Function
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.jobs import JobPlan
from gradmux.orchestrator.loop import Loop, RunSummary
from gradmux.orchestrator.policies import Earliest, Limits, WaitPolicy
from gradmux.orchestrator.ports import Arrival
from gradmux.orchestrator.record import Decoded, EndLine, FileRecord, Header, Heard, Line, RoundLine, read_record
from gradmux.orchestrator.rounds import Rounds
from gradmux.orchestrator.schemes.registry import build_scheme, get, parse_params
from gradmux.orchestrator.schemes.scheme import Context, Params, Scheme
from gradmux.orchestrator.store import Keys, S3Store
from gradmux.orchestrator.training.data import Dataset, put_dataset
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.order import BatchOrder
from gradmux.orchestrator.training.requests import RequestBuilder, RunMaterials, Wire, wire_dtype
from gradmux.orchestrator.training.trainer import INLINE_BYTES, TorchTrainer
from tests.orchestrator.fleets.emulated import local_session
from tests.orchestrator.training.bench import make_dataset

BUCKET = "end-to-end"
POLL_S = 0.5
DRAIN_S = 10.0
IN_STORE = 0
"""`inline_bytes` with which no snapshot travels in a request"""
REFUSALS = ("TooManyRequestsException", "ServiceException", "ServiceUnavailableException")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained, and under which scheme. Not slotted: what follows from it is kept."""

    scheme: str
    params: Mapping[str, int | float | str] = field(default_factory=dict)
    plans: Sequence[ModelPlan]
    workers: int = 8
    steps: int = 4
    batch_size: int = 42
    dataset: Dataset = field(default_factory=lambda: make_dataset(rows=150))
    wait: WaitPolicy = field(default_factory=Earliest)
    limits: Limits = field(default_factory=Limits)
    seed: int = 1
    dtype: str = "float32"
    clip_norm: float | None = None
    inline_bytes: int = INLINE_BYTES
    """snapshots up to this size travel in the requests"""

    @cached_property
    def plan(self) -> JobPlan:
        return JobPlan(len(self.plans), self.steps)

    @cached_property
    def order(self) -> BatchOrder:
        return BatchOrder(self.dataset.rows, self.batch_size, self.seed)

    @property
    def complete_params(self) -> Params:
        """Long names, defaults filled in."""
        return parse_params(get(self.scheme), self.params)

    def new_scheme(self) -> Scheme:
        """As every run, replay and simulation of this job begins with it."""
        context = Context(
            workers=self.workers,
            jobs=self.plan.jobs,
            models=self.plan.models,
            seed=self.seed,
            concurrency=self.limits.concurrency,
            samples=self.batch_size,
        )
        return build_scheme(self.scheme, self.complete_params, context)

    def header(self, run: str, scheme: Scheme) -> Header:
        return Header(
            run=run,
            scheme=self.scheme,
            params=dict(self.complete_params),
            workers=scheme.workers,
            models=self.plan.models,
            steps=self.plan.steps,
            seed=self.seed,
            wait=asdict(self.wait),
            limits=asdict(self.limits),
        )


@dataclass(frozen=True, slots=True)
class Played:
    """One run, and everything that was seen of it."""

    job: Job
    run: str
    scheme: Scheme
    trainer: TorchTrainer
    summary: RunSummary
    lines: Sequence[Line]
    """the record, as read back from its file"""
    arrivals: Sequence[Arrival]
    """every arrival with its results, in order"""
    posts: Sequence[Mapping[str, Any]]
    """the emulator's journal of this run"""

    @property
    def rounds(self) -> list[RoundLine]:
        return [line for line in self.lines if isinstance(line, RoundLine)]

    @property
    def decoded(self) -> list[Decoded]:
        """By job."""
        told = [item for line in self.lines if not isinstance(line, Header) for item in line.decoded]
        return sorted(told, key=lambda item: item.job)

    @property
    def heard(self) -> list[Heard]:
        return [item for line in self.lines if not isinstance(line, Header) for item in line.arrivals]

    @property
    def attempts(self) -> list[tuple[int, int, int]]:
        """(round, worker, attempt) of every invocation that the record says was made."""
        sent = [group for line in self.lines if isinstance(line, RoundLine | EndLine) for group in line.sent]
        return [(group.round, worker, group.attempt) for group in sent for worker in group.workers]

    @property
    def let_in(self) -> list[tuple[int, int, int]]:
        """(round, worker, attempt) of every POST that the emulator did not refuse."""
        return [(p["round"], p["worker"], p["attempt"]) for p in self.posts if p["outcome"] not in REFUSALS]


class Listening(LambdaFleet):
    """The real fleet; it also remembers what arrived."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.arrivals: list[Arrival] = []

    def next(self, until_s: float | None) -> Arrival | None:
        arrival = super().next(until_s)
        if arrival is not None:
            self.arrivals.append(arrival)
        return arrival


class Stage:
    """One emulator with a bucket; runs follow each other on it."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.emulator, self._folder = emulator, folder
        self._numbers = count()
        session = local_session(emulator)
        s3 = boto3.Session(botocore_session=session).client("s3", endpoint_url=emulator.s3_endpoint)
        s3.create_bucket(Bucket=BUCKET)
        self.store = S3Store(BUCKET, endpoint_url=emulator.s3_endpoint, session=session)

    def lambda_like(self, time_scale: float, *, workers: int, seed: int = 3) -> None:
        """Delays like AWS Lambda's from now on, `time_scale` times as long."""
        profile = generate("lambda-like", rounds=50, workers=workers, seed=seed)
        self.emulator.set_delays(DelayPlan.of(profile.delays_s.tolist(), time_scale=time_scale, seed=seed))

    def calm(self) -> None:
        """No delays, no faults."""
        self.emulator.set_delays(DelayPlan())
        self.emulator.set_faults(FaultPlan())

    @contextmanager
    def fleet(self, run: str, builder: RequestBuilder) -> Iterator[Listening]:
        """A fleet for one run."""
        config = self.emulator.config
        fleet = Listening(
            Function(config.function, timeout_s=config.timeout_s),
            builder,
            self.store,
            run=run,
            session=local_session(self.emulator),
            endpoint_url=self.emulator.lambda_endpoint,
        )
        try:
            yield fleet
        finally:
            fleet.close()

    def trainer(self, job: Job, run: str) -> TorchTrainer:
        jobs, keys = job.plan, Keys(run)
        return TorchTrainer(
            [replace(plan, clip_norm=job.clip_norm) for plan in job.plans],
            jobs,
            store=self.store,
            keys=keys,
            inline_bytes=job.inline_bytes,
        )

    def builder(self, job: Job, run: str, trainer: TorchTrainer, scheme: Scheme) -> RequestBuilder:
        materials = RunMaterials(
            keys=Keys(run),
            bucket=BUCKET,
            data=put_dataset(self.store, job.dataset),
            specs=trainer.put_specs(),
            orders=[job.order] * job.plan.models,
            weights=trainer.weights,
            seeds=trainer.seeds,
            wire=Wire(dtype=wire_dtype([job.dtype], binary=scheme.binary)),
        )
        return RequestBuilder(materials, job.plan, scheme.chunk_sizes)

    def new_run(self, job: Job) -> str:
        """A name that no run on this stage has."""
        return f"{job.scheme}-{next(self._numbers)}"

    def play(self, job: Job) -> Played:
        """Runs the job to its end, and until the last answer has come."""
        run, scheme = self.new_run(job), job.new_scheme()
        trainer = self.trainer(job, run)
        builder = self.builder(job, run, trainer, scheme)
        record, before = FileRecord(self._folder / f"{run}.jsonl", sync=False), len(self.emulator.admin.journal())
        record.write(job.header(run, scheme))
        rounds = Rounds(scheme, job.plan, job.wait, job.limits)
        with self.fleet(run, builder) as fleet:
            loop = Loop(
                plan=job.plan,
                rounds=rounds,
                fleet=fleet,
                trainer=trainer,
                recorder=record,
                poll_s=POLL_S,
            )
            loop.run()
            summary = loop.drain(DRAIN_S)
        record.close()
        lines = list(read_record(self._folder / f"{run}.jsonl"))
        posts = self.emulator.admin.journal()[before:]
        return Played(job, run, scheme, trainer, summary, lines, fleet.arrivals, posts)
