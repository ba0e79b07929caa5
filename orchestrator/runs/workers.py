"""Who computes for one life of a run, and what makes their requests.

Knows neither loop nor scheme. Read next: `train.py`, which puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradmux.lambda_worker.contract import Request
from gradmux.orchestrator.fleets.beside import CallsBeside
from gradmux.orchestrator.fleets.lambda_fleet import LambdaFleet
from gradmux.orchestrator.fleets.onward_fleet import OnwardFleet
from gradmux.orchestrator.fleets.shared_fleet import Warm
from gradmux.orchestrator.ports import Invocation, Trainer
from gradmux.orchestrator.runs.aggregation import Aggregation
from gradmux.orchestrator.runs.patience import PatientStore
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
    """Who computes for a life, and what makes their requests."""

    requests: Restoring
    calls: LambdaFleet
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
        return self.aggregation.trainer(trainer, setting, self.beside.counting(self.calls.run), store)
