"""What a run gives back: numbers for people and programs, and where record and weights lie.

Knows no backend. Read next: `api.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ModelResult:
    """One trained model."""

    name: str
    steps: int
    train_loss: float | None
    """mean over the last batch; None when the record of it was lost"""
    eval: Mapping[str, float]
    """`loss` and, for classifiers, `accuracy` on the evaluation rows; `ema_loss` and `ema_accuracy` of the average of
    the weights, where there is one; the job's metrics by name; empty without such rows"""
    checkpoint: Path
    """its weights: safetensors"""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """what the job names, over the last batch"""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One finished run."""

    run: str
    state: str
    scheme: str
    params: Mapping[str, int | float | str]
    workers: int
    """n"""
    load: float
    """largest fraction of one batch that a worker processed in one round"""
    rounds: int
    wall_s: float
    """from the first dispatch to the last applied gradient"""
    billed_s: float
    """of all invocations, late and redundant ones included"""
    invocations: int
    models: tuple[ModelResult, ...]
    max_residual: float
    """largest |weights x rows - 1| of any decode"""
    max_amplification: float
    """how much rounding noise the worst decode amplified"""
    record: Path
    """one JSON line per round"""
    cpus: tuple[str, ...] = ()
    """models of the processors that workers had: results differ a little between them"""
    cost: Mapping[str, float] = field(default_factory=dict)
    buffers_stayed: int = 0
    """gradients that were estimated without the batch's first pass, after which the buffers that a forward changes (but
    for batch norm's) stayed as they were"""

    def to_dict(self) -> dict[str, Any]:
        """The document that `gradmux submit --json` ends with."""
        return {
            "run": self.run,
            "state": self.state,
            "scheme": self.scheme,
            "params": dict(self.params),
            "workers": self.workers,
            "load": self.load,
            "rounds": self.rounds,
            "wall_s": self.wall_s,
            "models": [
                {
                    "name": model.name,
                    "steps": model.steps,
                    "train_loss": model.train_loss,
                    "train_metrics": dict(model.metrics),
                    "eval": dict(model.eval),
                    "checkpoint": str(model.checkpoint),
                }
                for model in self.models
            ],
            "cost": {"billed_s": self.billed_s, "invocations": self.invocations, **self.cost},
            "decode": {
                "max_residual": self.max_residual,
                "max_amplification": self.max_amplification,
                "buffers_stayed": self.buffers_stayed,
            },
            "cpus": list(self.cpus),
            "record": str(self.record),
        }


def stayed(jobs: int) -> list[tuple[str, str]]:
    """What estimates did to buffers, as a fact for people; none where there were no such."""
    if not jobs:
        return []
    return [("buffers", f"as before after {jobs} steps whose estimates had no answer with the batch's first pass")]


def not_back(cost: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Calls that the end of a run did not wait for, as a fact for people; none where there were no such."""
    if not cost.get("not_back"):
        return []
    most_s = f"{cost['not_back_s_at_most']:.1f} s"
    return [("not back", f"{cost['not_back']} invocations, which are not in the bill: at most {most_s} more")]


@dataclass(frozen=True, slots=True)
class Trained(Mapping[str, "nn.Module"]):
    """The trained modules by name, and the run's numbers in `run`."""

    run: RunResult
    modules: Mapping[str, nn.Module]
    averages: Mapping[str, nn.Module] = field(default_factory=dict)
    """modules of their own with the moving average of the weights, of models with `ema`"""

    def __getitem__(self, name: str) -> nn.Module:
        return self.modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)
