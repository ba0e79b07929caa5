"""A job's first steps in workers of the emulator and in a plain loop: what `gradmux doctor JOB --compare` says.

    difference = |weights - plain weights| / |plain weights - initial weights|

Read next: `reference.py`, the plain loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from gradmux.orchestrator.auto import AUTO
from gradmux.orchestrator.backends import open_place
from gradmux.orchestrator.config import JobConfig, SchemeConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.findings import Finding, Level, failure, warning, well
from gradmux.orchestrator.materials import Materials
from gradmux.orchestrator.reference import Reference, vector
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.prepare import Prepared, prepare_job
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.schemes.uncoded import INFO as UNCODED
from gradmux.orchestrator.store import open_bucket
from gradmux.orchestrator.training.models import prepare, seeded

STEPS = 5
AUTO_WORKERS = 4
"""n where the job leaves it open"""
TOLERANCE = {"float32": 1e-3, "float64": 1e-7}
"""Of the difference: rounding gives about 1e-6 in float32, and Adam's first steps more where gradients are near 0."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One model, trained both ways."""

    name: str
    difference: float
    """as above; of parameters and float buffers"""
    change: float
    """|plain weights - initial weights| / |initial weights|"""
    losses: tuple[float, float]
    """of the last step: in workers, in the plain loop"""


def compared(job: Path | None, config: JobConfig | None, findings: Sequence[Finding]) -> list[Finding]:
    """What comparing adds to what was found of a job file; nothing where that is bad enough. Raises: as `compare`."""
    if job is None or config is None:
        raise ConfigError("--compare needs a JOB, for example gradmux doctor job.toml --compare")
    sound = all(finding.level is Level.OK for finding in findings)
    return compare(config, job.parent) if sound else []


def compare(config: JobConfig, folder: Path, steps: int = STEPS) -> list[Finding]:
    """Trains a few steps of the job both ways; a finding for each model. Raises: ConfigError, and what ends a run."""
    small = _small(config, steps)
    prepared = prepare_job(small, Materials(), folder, open_bucket)
    exact = prepared.scheme().exact
    return [_finding(each, small, exact=exact) for each in compare_models(prepared, folder)]


def compare_models(prepared: Prepared, folder: Path) -> list[Compared]:
    """The same for a job that is prepared: all of its steps."""
    initial = {plan.name: prepare(seeded(plan)).module for plan in prepared.models}
    reference = Reference.of(prepared)
    with TemporaryDirectory(prefix="gradmux-compare-") as home:
        paths = keep_job(prepared, Path(home), folder)
        with open_place(prepared.config) as place:
            trained = run_job(prepared, place, paths)
    losses = {each.name: each.train_loss for each in trained.run.models}
    return [
        Compared(
            name, *_differences(module, trained, initial[name], name), (losses[name] or 0.0, reference.losses[name][-1])
        )
        for name, module in reference.items()
    ]


@torch.no_grad()
def _differences(
    plain: nn.Module, trained: Mapping[str, nn.Module], initial: nn.Module, name: str
) -> tuple[float, float]:
    expected, began = vector(plain), vector(initial)
    moved = float(torch.linalg.vector_norm(expected - began))
    apart = float(torch.linalg.vector_norm(vector(trained[name]) - expected))
    size = float(torch.linalg.vector_norm(began))
    return apart / (moved or 1.0), moved / (size or 1.0)


def _small(config: JobConfig, steps: int) -> JobConfig:
    """So many steps of the job in the emulator, which nothing delays and nothing fails, under an exact scheme."""
    training = config.training.model_copy(update={"steps": min(steps, config.training.steps), "checkpoint_every": 0})
    scheme, cluster = config.scheme, config.cluster
    if scheme.name == AUTO:
        workers = AUTO_WORKERS if cluster.workers == "auto" else cluster.workers
        scheme, cluster = SchemeConfig(name=UNCODED.name), cluster.model_copy(update={"workers": workers})
    cluster = cluster.model_copy(update={"backend": "local", "max_cost_usd": None})
    data = config.data.model_copy(update={"eval": None})
    return config.model_copy(update={"training": training, "scheme": scheme, "cluster": cluster, "data": data})


def _finding(found: Compared, config: JobConfig, *, exact: bool) -> Finding:
    steps, check = config.training.steps, f"compare {found.name}"
    says = (
        f"after {steps} steps the weights of workers and of a plain torch loop are {found.difference:.1e} of their "
        f"change apart (loss {found.losses[0]:.6g} and {found.losses[1]:.6g})"
    )
    if found.difference <= TOLERANCE[config.training.dtype]:
        return well(check, says)
    if not exact:
        return warning(
            check, f"{says}; {config.scheme.name} estimates gradients", "an exact scheme gives the same weights"
        )
    return failure(
        check, says, "this model does not train as in plain torch: please report it, with the model's layers"
    )
