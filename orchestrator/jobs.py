"""Which model and step a job is: job t belongs to model t mod M and is its step t div M.

Pure arithmetic; knows neither schemes nor tensors. Read next: `rounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class JobPlan:
    """M models of `steps` steps each, interleaved: job t needs the weights that job t - M produced."""

    models: int
    """M"""
    steps: int
    """per model"""

    @property
    def jobs(self) -> int:
        """J = M * steps."""
        return self.models * self.steps

    def model(self, job: int) -> int:
        """Index of the model that `job` trains."""
        return job % self.models

    def step(self, job: int) -> int:
        """Which step of its model `job` is, from 0."""
        return job // self.models

    def predecessor(self, job: int) -> int | None:
        """The job whose decode gives the weights that `job` starts from; None for a model's first step."""
        return job - self.models if job >= self.models else None


def require_models(models: int, delay: int, scheme: str) -> None:
    """Refuses a scheme whose delay T does not fit M models: a job's weights would not be ready in time.

    Raises: ConfigError that names M, T and what would fit.
    """
    if models >= delay + 1:
        return
    fits = f"any scheme with delay T <= {models - 1}" if models > 1 else "a scheme without delay (uncoded, gc, pipeline)"
    raise ConfigError(
        f"{scheme} has delay T = {delay} and so needs at least T + 1 = {delay + 1} models side by side, but the job has "
        f"M = {models}: add {delay + 1 - models} model(s), or use smaller parameters or {fits}"
    )
