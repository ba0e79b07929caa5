"""The workers of one life of a run, and what makes their requests.

Knows neither loop nor scheme. Read next: `player.py`, which puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gradmux.lambda_worker.contract import Request
from gradmux.orchestrator.fleets.between import CallsBeside, OnwardFleet, SharedFleet, Warm, warm_within
from gradmux.orchestrator.fleets.calling import WorkerFleet
from gradmux.orchestrator.fleets.warming import memory_settled
from gradmux.orchestrator.ports import Arrival, Invocation, Trainer
from gradmux.orchestrator.runs.aggregation import Aggregation
from gradmux.orchestrator.runs.assemble import Assembly
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.slots import Slots, slots_folder
from gradmux.orchestrator.training.cloud_sum import Setting
from gradmux.orchestrator.training.requests import RequestBuilder
from gradmux.orchestrator.training.trainer import TorchTrainer


class Restoring:
    """Makes requests; before a task is tried again, it sees to it that its snapshot is still in the store."""

    def __init__(self, trainer: TorchTrainer) -> None:
        self._trainer = trainer

    def serve(self, requests: RequestBuilder) -> None:
        """From now on these make the requests."""
        self._requests = requests

    def build(self, call: Invocation) -> Request:
        if call.attempt > 1:
            for job in {task.job for task in call.slots if task is not None}:
                self._trainer.restore(job)
        return self._requests.build(call)

    def warm(self, call: Invocation) -> Request:
        return self._requests.warm(call)


@dataclass(frozen=True, slots=True)
class Workers:
    """Those of one life."""

    requests: Restoring
    calls: WorkerFleet
    """what really invokes"""
    fleet: OnwardFleet
    """the same, as the loop sees it"""
    warm: Warm
    """starts workers and has them read what they will need, as far as there are slots"""
    beside: CallsBeside
    """counts what is called besides the rounds"""
    aggregation: Aggregation

    def summing(self, trainer: TorchTrainer, setting: Setting, store: PatientStore) -> Trainer:
        """The trainer, as the loop sees it."""
        run = self.beside.counting(self.calls.run)

        def again(calls: Sequence[Invocation]) -> Sequence[Arrival]:
            return run([(call, self.requests.build(call)) for call in calls])

        return self.aggregation.trainer(trainer, setting, run, store, again)


@contextmanager
def open_workers(parts: Assembly, trainer: TorchTrainer) -> Iterator[Workers]:
    """The fleet of a life, tried, for as long as the context is open."""
    prepared, requests = parts.prepared, Restoring(trainer)
    aggregation = Aggregation.of(prepared, trainer)
    calls = parts.fleet(requests, aggregation.shelf)
    slots = Slots(slots_folder(parts.paths, parts.place.pool), prepared.config.cluster.concurrency)
    fleet = OnwardFleet(SharedFleet(calls, slots))
    try:
        calls.check(connections=prepared.scheme().workers)
        with memory_settled():
            warm, beside = warm_within(slots, calls.warm), CallsBeside()
            yield Workers(requests, calls, fleet, beside.counting(warm), beside, aggregation)
    finally:
        fleet.close()
        slots.close()
