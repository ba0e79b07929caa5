"""Where the gradients of a run are summed: by the client as they arrive, or by workers, beside the store.

Knows no backend. Read next: `orchestrator/training/cloud_sum.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradmux.orchestrator.ports import Sums, Trainer
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.training.cloud_sum import Again, CloudSums, CloudTrainer, ReadsMany, Send, Setting, pays
from gradmux.orchestrator.training.stored import Shelf
from gradmux.orchestrator.training.streamed_sums import StreamedSums
from gradmux.orchestrator.training.trainer import TorchTrainer


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Of one life of a run."""

    shelf: Shelf | None
    """where results wait to be summed by workers; None: the client sums"""

    @classmethod
    def of(cls, prepared: Prepared, trainer: TorchTrainer) -> Aggregation:
        """As the job says; by itself in the cloud when a gradient is too large for a reply."""
        wanted = prepared.config.cluster.aggregate
        largest = max(trainer.size(model) for model in range(prepared.plan.models))
        large = pays(largest, prepared.config.training.dtype) and not prepared.scheme().reuses_results
        if prepared.most:
            return cls(None)  # states come back, which are not added up
        return cls(Shelf() if wanted == "cloud" or (wanted == "auto" and large) else None)

    @property
    def mode(self) -> str:
        """How results come back (`requests.Wire`)."""
        return "auto" if self.shelf is None else "s3"

    @property
    def sums(self) -> Sums | None:
        """What adds results on their arrival."""
        return StreamedSums() if self.shelf is None else None

    def trainer(self, trainer: Trainer, setting: Setting, send: Send, store: ReadsMany, again: Again) -> Trainer:
        """`trainer`, or one whose results are summed first, by the workers that `send` invokes.

        `again` has calls of a round answered once more.
        """
        if self.shelf is None:
            return trainer
        self.shelf.begin()
        return CloudTrainer(trainer, CloudSums(setting, send, store, self.shelf, again))
